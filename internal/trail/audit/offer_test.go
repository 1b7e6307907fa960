package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// witnesses has a trail's checkpoints cosigned, until the test ends.
func witnesses(t *testing.T, trail *Trail, cosign func(context.Context, Offer) ([]byte, error)) {
	t.Helper()
	offers := trail.Offers()
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case o := <-offers:
				text, err := cosign(t.Context(), o)
				if text != nil {
					err = errors.Join(err, trail.KeepCosigned(t.Context(), o, text))
				}
				if err == nil {
					trail.Cosigned(o)
				}
			}
		}
	}()
}

// A cosigned checkpoint is kept once more, and all stays whole, now and after a restart.
func TestCosignedCheckpointsAreKept(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	cosign := func(_ context.Context, o Offer) ([]byte, error) {
		return append(o.Note, "— witness.example.com/w AAAAAGFiYw==\n"...), nil
	}
	o := testOptions(t)
	trail := openTrail(t, st, o)
	witnesses(t, trail, cosign)
	for n := range 5 {
		appendEntries(t, trail, n, n+1)
		waiting.Until(t, func() bool { return keptNote(t, trail, int64(n)+1, "— witness.example.com/w ") })
	}
	requireWhole(t, trail, 5)
	require.NoError(t, trail.Close(t.Context()))
	trail = openTrail(t, st, o)
	requireWhole(t, trail, 5)
	assert.Len(t, trail.Generations(), 1)
	appendEntries(t, trail, 5, 6)
	waitSigned(t, trail, 6)
	requireWhole(t, trail, 6)
}

// keptNote reports whether the newest kept checkpoint is of n entries, with that text.
func keptNote(t *testing.T, trail *Trail, n int64, text string) bool {
	t.Helper()
	require.NoError(t, trail.lock(t.Context()))
	defer trail.unlock()
	if trail.keptSeq == 0 {
		return false
	}
	var newest Kept
	_, err := each(t.Context(), trail.checkpoints, store.Pos(trail.keptSeq), func(item store.Item) (err error) {
		newest, err = decodeKept(item.Record)
		return err
	})
	require.NoError(t, err)
	return newest.Size == n && strings.Contains(newest.Note, text)
}

// A witness that never answers delays no append and no signature.
func TestASlowWitnessDelaysNothing(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	called := make(chan struct{}, 1)
	trail := openTrail(t, st, o)
	witnesses(t, trail, func(ctx context.Context, _ Offer) ([]byte, error) {
		called <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	appendEntries(t, trail, 0, 1)
	<-called
	appendEntries(t, trail, 1, 20)
	waitSigned(t, trail, 20)
	require.NoError(t, trail.Close(t.Context()))
}

// A refusal enters the trail once, over restarts, until the witness agrees.
func TestARefusalIsEnteredOnce(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	a := WitnessRefusal{Witness: "witness.example.com/a+0+x", Reason: "it has cosigned more"}
	b := WitnessRefusal{Witness: "witness.example.com/b+0+x", Reason: "it has cosigned more"}
	require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessAgreed, a), "nobody has refused")
	require.EqualValues(t, 1, trail.Size())
	for range 2 {
		require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessRefused, a))
		require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessRefused, a))
		require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessRefused, b))
		require.EqualValues(t, 3, trail.Size())
		require.NoError(t, trail.Close(t.Context()))
		trail = openTrail(t, st, o)
	}
	require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessAgreed, a))
	require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessAgreed, a))
	require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessRefused, a))
	require.EqualValues(t, 4, trail.Size(), "not within an hour")
	_, err := trail.Append(t.Context(), Entry{
		Type: TypeWitnessAgreed, Project: OwnProject, Subject: "witness " + a.Witness, Time: time.Now().Add(-2 * accuseAgain),
	})
	require.NoError(t, err)
	require.NoError(t, trail.RecordWitness(t.Context(), TypeWitnessRefused, a))
	require.EqualValues(t, 6, trail.Size())
	kinds := ""
	for _, e := range entriesFrom(t, trail, 1) {
		kinds += fmt.Sprintln(e.Type, e.Subject)
	}
	assert.Equal(t, "trail.witness_refused witness witness.example.com/a+0+x\ntrail.witness_refused witness witness.example.com/b+0+x\n"+
		strings.Repeat("trail.witness_agreed witness witness.example.com/a+0+x\n", 2)+"trail.witness_refused witness witness.example.com/a+0+x\n", kinds)
}

// A witness that says to have cosigned more than there is gets its answer from the checkpoints alone.
// Nothing else is read, and nobody waits for it.
func TestALyingWitnessHoldsUpNothing(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	offers := trail.Offers()
	appendEntries(t, trail, 0, 3)
	waitSigned(t, trail, 3)
	var newest Offer
	waiting.Until(t, func() bool {
		select {
		case newest = <-offers:
		default:
		}
		return newest.Size == 3
	})
	require.NoError(t, trail.lock(t.Context())) // somebody appends, or reads the trail back
	unlock := sync.OnceFunc(trail.unlock)
	defer unlock()
	reads := st.log(EntriesLog).count()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	for _, size := range []int64{4, 1 << 62} {
		reached, err := newest.Reaches(ctx, size)
		require.NoError(t, err)
		require.False(t, reached)
	}
	unlock()
	require.False(t, trail.stale.Load())
	require.Equal(t, reads, st.log(EntriesLog).count())

	other := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
	appendEntries(t, other, 3, 5)
	waitSigned(t, other, 5)
	for size, want := range map[int64]bool{5: true, 6: false} {
		reached, err := newest.Reaches(t.Context(), size)
		require.NoError(t, err)
		require.Equal(t, want, reached, "another relay has signed 5 entries")
	}
	kept := records(t, st, CheckpointsLog)
	replace(t, st, CheckpointsLog, kept, store.Pos(len(kept)))
	_, err := newest.Reaches(t.Context(), 6)
	require.Error(t, err, "nobody is accused where a checkpoint cannot be read")
}
