package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// offers keeps the newest offer, and signs none.
type offers struct {
	mu     sync.Mutex
	newest Offer
	sign   func(Offer) ([]byte, error)
}

func (o *offers) cosign(_ context.Context, offer Offer) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.newest = offer
	if o.sign != nil {
		return o.sign(offer)
	}
	return nil, nil
}

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

// of waits for the offer of n entries.
func (o *offers) of(t *testing.T, n int64) Offer {
	t.Helper()
	waiting.Until(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.newest.Size >= n
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Equal(t, n, o.newest.Size)
	return o.newest
}

// Each checkpoint is proven to continue each earlier tree, by hashes of the kept checkpoints
// and entries, and so after a restart too.
func TestOffersAreProvenConsistent(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	var asked offers
	o := testOptions(t)
	trail := openTrail(t, st, o)
	witnesses(t, trail, asked.cosign)
	roots := map[int64]tlog.Hash{}
	const last = 70
	for n := int64(1); n <= last; n++ {
		appendEntries(t, trail, int(n)-1, int(n))
		if n%7 < 3 || n == last { // checkpoints of one entry, and of several
			roots[n] = asked.of(t, n).Root
		}
	}
	for restart := range 2 {
		newest := asked.of(t, last)
		for old, root := range roots {
			proof, err := newest.Prove(t.Context(), old)
			require.NoError(t, err)
			if old == last {
				assert.Empty(t, proof)
				continue
			}
			require.NoErrorf(t, tlog.CheckTree(proof, last, newest.Root, old, root), "from %d", old)
		}
		if restart == 0 {
			asked.mu.Lock()
			asked.newest = Offer{}
			asked.mu.Unlock()
			require.NoError(t, trail.Close(t.Context()))
			witnesses(t, openTrail(t, st, o), asked.cosign)
		}
	}
}

// A cosigned checkpoint is kept once more, and all stays whole, now and after a restart.
func TestCosignedCheckpointsAreKept(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	var asked offers
	asked.sign = func(o Offer) ([]byte, error) {
		return append(o.Note, "— witness.example.com/w AAAAAGFiYw==\n"...), nil
	}
	o := testOptions(t)
	trail := openTrail(t, st, o)
	witnesses(t, trail, asked.cosign)
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
	c, err := keptRun{trail: trail}.get(t.Context(), trail.keptSeq)
	require.NoError(t, err)
	require.NotNil(t, c)
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
	require.EqualValues(t, 5, trail.Size())
	kinds := ""
	for _, e := range entriesFrom(t, trail, 1) {
		kinds += fmt.Sprintln(e.Type, e.Subject)
	}
	assert.Equal(t, "trail.witness_refused witness witness.example.com/a+0+x\ntrail.witness_refused witness witness.example.com/b+0+x\n"+
		"trail.witness_agreed witness witness.example.com/a+0+x\ntrail.witness_refused witness witness.example.com/a+0+x\n", kinds)
}
