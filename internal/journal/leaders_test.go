package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// pace is between two steps of one part of a load. Without it the load takes the processor
// from the elections under test.
const pace = 5 * time.Millisecond

// load is the constant work of senders, a sink and the trail.
type load struct {
	t       *testing.T
	j       *opened
	trail   *audit.Trail
	cancel  context.CancelFunc
	running sync.WaitGroup
	reading sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	kept    [4][]string
	slowest time.Duration // of a push, until it is acknowledged
	seen    []string
	entries int
}

func startLoad(t *testing.T, j *opened) *load {
	t.Helper()
	l := &load{t: t, j: j}
	dir := t.TempDir()
	var err error
	l.trail, err = audit.Open(t.Context(), j.conn.JetStream, audit.Options{
		StreamPrefix: j.cfg.StreamPrefix, Replicas: 3, Origin: "example.com/test", KeyFile: filepath.Join(dir, "audit.key"),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	source := j.source(t, "k")
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	for p := range l.kept {
		l.running.Go(func() { l.push(ctx, p) })
	}
	l.running.Go(func() { l.enter(ctx) })
	l.reading.Go(func() { l.read(source) })
	t.Cleanup(func() { cancel(); l.running.Wait(); source.Close(); l.reading.Wait() })
	return l
}

// push sends events one by one, each until it is acknowledged.
func (l *load) push(ctx context.Context, p int) {
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(pace)
		e := relaytest.Events(1, relaytest.From(p*1_000_000+i))
		start := time.Now()
		for l.j.Append(context.Background(), batchOf(e)) != nil { //nolint:revive // it is pushed again
		}
		l.mu.Lock()
		l.kept[p] = append(l.kept[p], e[0].ID)
		l.slowest = max(l.slowest, time.Since(start))
		l.mu.Unlock()
	}
}

// enter appends entries one by one, each until it is in the trail: a conflict means an
// earlier attempt put it there.
func (l *load) enter(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(pace)
		e := audit.Entry{Type: "test", Project: "p", Environment: "e", Subject: fmt.Sprintf("s%d", i), Time: time.Now()}
		for {
			_, err := l.trail.AppendIf(context.Background(), e, -1)
			if err == nil || errors.Is(err, audit.ErrConflict) {
				break
			}
		}
		l.mu.Lock()
		l.entries++
		l.mu.Unlock()
	}
}

func (l *load) read(source *Source) {
	for {
		b, err := source.Next(context.Background())
		if err != nil {
			return // it is closed
		}
		l.mu.Lock()
		l.seen = append(l.seen, ids(b.Events)...)
		l.mu.Unlock()
		assert.NoError(l.t, source.Ack(context.Background(), b.Position))
	}
}

// goesOn waits until every part of it has got on.
func (l *load) goesOn() {
	l.t.Helper()
	count := func() [6]int {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := [6]int{4: l.entries, 5: len(l.seen)}
		for p := range l.kept {
			n[p] = len(l.kept[p])
		}
		return n
	}
	before := count()
	waiting.While(l.t, func() any { return count() }, func() bool {
		for i, n := range count() {
			if n < before[i]+5 {
				return false
			}
		}
		return true
	}, "something stands still: pushes, trail, source")
}

// end stops it, and counts.
func (l *load) end() {
	t := l.t
	t.Helper()
	l.cancel()
	l.running.Wait()
	waiting.While(t, func() any { return l.missing() }, func() bool { return l.missing() == 0 }, "what was acknowledged never comes")
	l.mu.Lock()
	defer l.mu.Unlock()
	order := firsts(l.seen)
	t.Logf("read %d, of which once %d, slowest push %v, entries %d", len(l.seen), len(order), l.slowest, l.entries)
	for p, want := range l.kept {
		sent := map[string]bool{}
		for _, id := range want {
			sent[id] = true
		}
		got := slices.DeleteFunc(slices.Clone(order), func(id string) bool { return !sent[id] })
		assert.True(t, slices.Equal(want, got), "sender %d's order", p)
	}
	assert.EqualValues(t, l.entries, l.trail.Size())
	var lost []datadir.Quarantined
	waiting.Until(t, func() (ok bool) {
		var err error
		lost, err = l.j.Losses.All(t.Context())
		return err == nil
	}, "the quarantine has no leader")
	assert.Empty(t, lost, "nothing was lost, so nothing is to be named")
}

// missing counts the acknowledged events not read yet.
func (l *load) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for _, id := range l.seen {
		seen[id] = true
	}
	for _, id := range slices.Concat(l.kept[:]...) {
		if !seen[id] {
			n++
		}
	}
	return n
}

// firsts leaves out repetitions.
func firsts(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// As long as a cluster has a quorum, everything goes on within seconds, whatever else
// changes or goes away, and no acknowledged event is lost.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)

	t.Run("leaders step down", func(t *testing.T) {
		j := c.open(t, "STEP")
		defer j.shut(t)
		l := startLoad(t, j)
		l.goesOn()
		for range 2 {
			for _, what := range []string{
				"STREAM.LEADER.STEPDOWN." + j.names.events, "CONSUMER.LEADER.STEPDOWN." + j.names.events + "." + consumerPrefix + "k",
				"STREAM.LEADER.STEPDOWN.STEP_AUDIT",
			} {
				stepDown(t, j, what)
				l.goesOn()
			}
		}
		l.end()
	})

	t.Run("the leader is killed", func(t *testing.T) {
		j := c.open(t, "KILL")
		defer j.shut(t)
		l := startLoad(t, j)
		l.goesOn()
		leader := c.leader(t, j.names.events)
		c.Kill(leader)
		l.goesOn()
		c.restart(t, leader)
		l.goesOn()
		l.end()
	})

	t.Run("a node is frozen", func(t *testing.T) {
		j := c.open(t, "FREEZE")
		defer j.shut(t)
		l := startLoad(t, j)
		l.goesOn()
		name := j.conn.JetStream.Conn().ConnectedServerName()
		frozen := c.named(t, name)
		require.NoError(t, c.Freeze(frozen))
		defer func() { require.NoError(t, c.Thaw(frozen)) }()
		l.goesOn()
		assert.NotEqual(t, name, j.conn.JetStream.Conn().ConnectedServerName())
		require.NoError(t, c.Thaw(frozen))
		l.goesOn()
		l.end()
	})

	t.Run("without a quorum", func(t *testing.T) {
		j := c.open(t, "QUORUM")
		defer j.shut(t)
		j.commits.patience = time.Second
		j.push(t, relaytest.Events(1))
		c.Kill(1)
		c.Kill(2)
		start := time.Now()
		var pushes sync.WaitGroup
		for i := range 20 {
			pushes.Go(func() {
				assert.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(100+i)))), ErrUnavailable)
			})
		}
		pushes.Wait()
		assert.Less(t, time.Since(start), 10*(time.Second+attemptTimeout), "later pushes wait for those before them")
		c.restart(t, 1)
		waiting.Until(t, func() bool {
			return j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(1000)))) == nil
		}, "it does not resume")
		c.restart(t, 2)
		require.Contains(t, ids(read(t, j.source(t, "k"), 2, true)), relaytest.Events(1)[0].ID)
	})
}
