package audit

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
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
	lossy.failing = func() error { cancel(); return nil } // it is stored all the same
	_, err := trail.AppendIf(ctx, testEntry(0), -1)
	require.ErrorIs(t, err, store.ErrUnknown)
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

func TestAppendWithoutServer(t *testing.T) {
	t.Parallel()
	st, stop := startStore(t, filepath.Join(t.TempDir(), "store"))
	trail := openTrail(t, st, testOptions(t))
	stop()
	_, err := trail.Append(t.Context(), testEntry(0))
	require.Error(t, err)
}
