package journal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// commitTakes is how long a steadyLog takes for a record.
const commitTakes = 10 * time.Millisecond

// steadyLog takes commitTakes for each record.
type steadyLog struct {
	store.Log // nil: only the methods below are asked of it

	mu     sync.Mutex
	groups []uint64 // events of each record; guarded by mu
}

func (s *steadyLog) MaxRecord() int { return recordTarget + recordRoom }

func (s *steadyLog) Append(_ context.Context, d ...store.Draft) (store.Pos, error) {
	time.Sleep(commitTakes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, record.Count(d[0].Data))
	return store.Pos(len(s.groups)), nil
}

// committerOn is a committer over s.
func committerOn(s *steadyLog) *committer {
	return newCommitter(&Journal{
		set: &Set{}, events: s, metrics: newMetrics(prometheus.NewRegistry(), nil),
		decoded: record.NewCache(0), budget: newBudget(1<<40, 0, true), sweeps: sweeps{wake: make(chan struct{}, 1), next: newSweep()},
	})
}

// Eight senders push again a millisecond after each answer, and must share their commits.
// Without a wait they would take turns in two parts, with twice the commits.
func TestSendersThatReturnShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, pushes = 8, 20
		s := &steadyLog{}
		c := committerOn(s)
		var pushing sync.WaitGroup
		for range senders {
			pushing.Go(func() {
				for range pushes {
					if _, err := c.append(batchOf(relaytest.Events(1))); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		pushing.Wait()
		c.close()
		require.LessOrEqual(t, len(s.groups), pushes+3, "groups of %v", s.groups)
	})
}

// A sender alone has nobody to wait for: each of its pushes takes one commit's time.
func TestALonePushDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := committerOn(&steadyLog{})
		for range 10 {
			start := time.Now()
			_, err := c.append(batchOf(relaytest.Events(1)))
			require.NoError(t, err)
			require.Equal(t, commitTakes, time.Since(start))
		}
		c.close()
	})
}

// Senders pushing by a clock do not return. Waits for them must become rare.
func TestWaitsInVainBecomeRare(t *testing.T) {
	var r returning
	now, waits := time.Now(), 0
	for range 100 {
		r.queued++
		r.released(1, commitTakes, now)
		if left := r.wait(now); left > 0 {
			require.LessOrEqual(t, left, longestReturn)
			r.waited(false)
			waits++
		}
	}
	require.Equal(t, 13, waits, "one of 9, after the first ones")
	r.skip = 0
	require.Positive(t, r.wait(now))
	r.waited(true)
	require.Positive(t, r.wait(now), "a wait that paid is followed by further ones")
	require.Zero(t, r.wait(now.Add(longestReturn)), "it is too late for them")
	r.queued++
	require.Zero(t, r.wait(now), "they are back")
}
