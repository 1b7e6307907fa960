package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	rec, err := at(t.Context(), trail.checkpoints, store.Pos(trail.keptSeq))
	require.NoError(t, err)
	c, err := decodeKept(rec)
	require.NoError(t, err)
	return c.Size == n && strings.Contains(c.Note, text)
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
	require.NoError(t, trail.RecordAgreement(t.Context(), a), "nobody has refused")
	require.EqualValues(t, 1, trail.Size())
	for range 2 {
		require.NoError(t, trail.RecordRefusal(t.Context(), a))
		require.NoError(t, trail.RecordRefusal(t.Context(), a))
		require.NoError(t, trail.RecordRefusal(t.Context(), b))
		require.EqualValues(t, 3, trail.Size())
		require.NoError(t, trail.Close(t.Context()))
		trail = openTrail(t, st, o)
	}
	require.NoError(t, trail.RecordAgreement(t.Context(), a))
	require.NoError(t, trail.RecordAgreement(t.Context(), a))
	require.NoError(t, trail.RecordRefusal(t.Context(), a))
	require.EqualValues(t, 4, trail.Size(), "not within an hour")
	_, err := trail.Append(t.Context(), Entry{
		Type: TypeWitnessAgreed, Project: OwnProject, Subject: "witness " + a.Witness, Time: time.Now().Add(-2 * accuseAgain),
	})
	require.NoError(t, err)
	require.NoError(t, trail.RecordRefusal(t.Context(), a))
	require.EqualValues(t, 6, trail.Size())
	kinds := ""
	for _, e := range entriesFrom(t, trail, 1) {
		kinds += fmt.Sprintln(e.Type, e.Subject)
	}
	assert.Equal(t, "trail.witness_refused witness witness.example.com/a+0+x\ntrail.witness_refused witness witness.example.com/b+0+x\n"+
		strings.Repeat("trail.witness_agreed witness witness.example.com/a+0+x\n", 2)+"trail.witness_refused witness witness.example.com/a+0+x\n", kinds)
}
