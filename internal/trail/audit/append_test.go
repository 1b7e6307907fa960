package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	lossy := st.log(EntriesLog)
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 3)
	lossy.loseAnswers(1)
	index, err := trail.Append(t.Context(), testEntry(3)) // stored, unheard, sent again
	require.NoError(t, err)
	require.Zero(t, lossy.answersToLose(), "no acknowledgement was lost")
	require.EqualValues(t, 3, index)
	appendEntries(t, trail, 4, 6)
	requireWhole(t, trail, 6)
}

// TestLostAcknowledgementAndGivenUp: the caller's context ends before the
// answer; what it does next must not add the change again.
func TestLostAcknowledgementAndGivenUp(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	lossy := st.log(EntriesLog)
	trail := openTrail(t, st, testOptions(t))
	lossy.loseAnswers(1)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	lossy.failing = func() error { cancel(); <-returned; return nil } // it is stored all the same
	_, err := trail.AppendIf(ctx, testEntry(0), -1)
	require.ErrorIs(t, err, store.ErrUnknown)
	close(returned)
	_, err = trail.AppendIf(t.Context(), testEntry(6), -1)
	require.ErrorIs(t, err, ErrConflict)
	index, err := trail.AppendIf(t.Context(), testEntry(3), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, index)
	requireWhole(t, trail, 2)
}

func TestLostCheckpointAcknowledgement(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	lossy := st.log(CheckpointsLog)
	trail := openTrail(t, st, testOptions(t))
	lossy.loseAnswers(1)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	require.Zero(t, lossy.answersToLose(), "no acknowledgement was lost")
	appendEntries(t, trail, 1, 2)
	waitSigned(t, trail, 2)
	requireWhole(t, trail, 2)
}

// Two relays that share the streams but not the key: the second stops at the first's
// checkpoints, and does not begin a generation whenever it sees one. A start does.
func TestAnotherKeyEndsSigning(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	one, other := testOptions(t), testOptions(t)
	other.SignEvery = time.Hour
	a, b := openTrail(t, st, one), openTrail(t, st, other)
	appendEntries(t, a, 0, 2)
	waitSigned(t, a, 2)
	_, err := b.Append(t.Context(), testEntry(2))
	require.NoError(t, err) // it has not looked at the checkpoints yet
	require.ErrorIs(t, b.Close(t.Context()), ErrUnavailable)
	c := openTrail(t, st, other)
	require.Len(t, c.Generations(), 2)
	last, _, err := c.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.Equal(t, TypeGeneration, last.Type)
	require.Contains(t, string(last.Detail), a.PublicKey())
}

// Entries that wait for the turn are appended together, and each is held against its own condition.
func TestWaitingEntriesAreAppendedTogether(t *testing.T) {
	t.Parallel()
	const n = groupEntries - 3
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	log := st.log(EntriesLog)
	log.limit = 1 << 13
	trail := openTrail(t, st, o)
	var writes atomic.Int64
	require.NoError(t, trail.lock(t.Context()))
	log.appended = func(store.Pos) { writes.Add(1) }
	log.loseAnswers(1)
	given, cancel := context.WithCancel(t.Context())
	errs := make([]error, n+3)
	indexes := make([]int64, n+3)
	var appending sync.WaitGroup
	do := func(i int, e Entry, newest int64) {
		appending.Go(func() { indexes[i], errs[i] = trail.append(t.Context(), e, newest) })
	}
	for i := range n {
		e := testEntry(i)
		e.Subject = fmt.Sprintf("resource.%d", i)
		do(i, e, -1)
	}
	large := testEntry(0)
	large.Subject, large.After = "large", json.RawMessage(`"`+strings.Repeat("x", 1<<13)+`"`) // it is not compressed
	do(n, large, anyEntry)
	for i := range 2 {
		do(n+1+i, Entry{Type: "x", Project: "p", Subject: "twice", Time: testTime}, -1)
	}
	givenUp := make(chan error)
	go func() {
		_, err := trail.Append(given, Entry{Type: "x", Project: "p", Subject: "given up", Time: testTime})
		givenUp <- err
	}()
	waiting.Until(t, func() bool { return len(trail.additions) == n+3 }) // and one waits for the turn
	cancel()
	require.ErrorIs(t, <-givenUp, context.Canceled)
	trail.unlock()
	appending.Wait()

	seen := map[int64]bool{}
	for i := range n {
		require.NoError(t, errs[i])
		require.False(t, seen[indexes[i]], "an index is given twice")
		seen[indexes[i]] = true
		got, err := trail.Get(t.Context(), indexes[i])
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("resource.%d", i), got.Subject)
	}
	require.ErrorIs(t, errs[n], ErrTooLarge)
	twice := []bool{errors.Is(errs[n+1], ErrConflict), errors.Is(errs[n+2], ErrConflict)}
	require.NotEqual(t, twice[0], twice[1], "of two changes after the same entry, one is added: %v", errs[n+1:])
	require.Zero(t, log.answersToLose(), "no answer was lost")
	require.LessOrEqual(t, writes.Load(), int64(1), "besides the one whose answer was lost")
	_, err := trail.Append(t.Context(), testEntry(0)) // after all others
	require.NoError(t, err)
	requireWhole(t, trail, n+3)
}

func TestAppendWithoutServer(t *testing.T) {
	t.Parallel()
	st, stop := startStore(t, filepath.Join(t.TempDir(), "store"))
	trail := openTrail(t, st, testOptions(t))
	stop()
	_, err := trail.Append(t.Context(), testEntry(0))
	require.Error(t, err)
}
