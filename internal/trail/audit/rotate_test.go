package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// rotate does a rotation's steps up to one of them; afterwards the process is killed.
func rotate(t *testing.T, st *testStore, o Options, steps int) {
	t.Helper()
	public, err := nextKey(o.KeyFile)
	require.NoError(t, err)
	if steps == 1 {
		return
	}
	trail, err := Open(t.Context(), st, o)
	require.NoError(t, err)
	if steps == 2 { // the entry is there, and not signed
		readAll(t, trail)
		trail.stop()
		<-trail.done
		require.NoError(t, trail.appendOwn(t.Context(), TypeRotated, Rotation{Key: public, Previous: trail.PublicKey()}))
		return
	}
	require.NoError(t, trail.NameNextKey(t.Context(), public, Person{}))
	trail.stop()
	<-trail.done
	if steps == 3 {
		return
	}
	require.NoError(t, useNextKey(o.KeyFile))
}

// A rotation is killed after each of its steps; a relay goes on with the key that is
// there; the rotation is done again. Nothing is damaged, and the chain of keys holds.
func TestARotationKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for steps := 1; steps <= 4; steps++ {
		st, _ := startStore(t, t.TempDir())
		o := testOptions(t)
		trail := openTrail(t, st, o)
		appendEntries(t, trail, 0, 3)
		require.NoError(t, trail.Close(t.Context()))
		first := trail.PublicKey()

		rotate(t, st, o, steps)
		relay := openTrail(t, st, o) // it knows nothing of the rotation
		_, err := relay.Append(t.Context(), testEntry(3))
		require.NoError(t, err)
		require.NoError(t, relay.Close(t.Context()))
		if steps < 4 {
			require.Equal(t, first, relay.PublicKey(), "step %d", steps)
			rotate(t, st, o, 4)
		}
		relay = openTrail(t, st, o)
		_, err = relay.Append(t.Context(), testEntry(4))
		require.NoError(t, err)
		require.NoError(t, relay.Close(t.Context()))
		again := openTrail(t, st, o)
		report, err := again.Verify(t.Context())
		require.NoError(t, err)
		require.NoError(t, report.Err())
		require.Len(t, report.Generations, 2, "step %d", steps)
		require.Equal(t, first, report.Generations[0].PublicKey)
		require.True(t, report.Generations[1].Endorsed)
		require.False(t, tlogproof.SamePublicKey(first, report.Generations[1].PublicKey))
		require.NoFileExists(t, nextFile(o.KeyFile))
		require.Contains(t, firstOpening(t, again).Reason, "the signing key was rotated")
	}
}

func firstOpening(t *testing.T, trail *Trail) Opening {
	t.Helper()
	x, err := trail.examine(t.Context())
	require.NoError(t, err)
	require.Len(t, x.openings, 1)
	for _, o := range x.openings {
		return o
	}
	return Opening{}
}

// A key that nobody has named is not endorsed; neither is one named by an altered entry.
func TestAKeyThatWasNotNamedIsNotEndorsed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	require.NoError(t, os.Remove(d.o.KeyFile))
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 0)
	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Generations, 2)
	require.False(t, report.Generations[1].Endorsed)

	r := rotations{7: trail.PublicKey()}
	require.True(t, r.to(trail.PublicKey(), report.Generations[0], nil))
	require.False(t, r.to(trail.PublicKey(), report.Generations[0], []span{{From: 6, To: 8}}))
	require.False(t, r.to(trail.PublicKey(), Generation{Size: 7}, nil), "it is not signed")
	require.False(t, r.to(report.Generations[0].PublicKey, report.Generations[0], nil))
}

// A successor elsewhere is named, too; nonsense and the key itself are refused.
func TestANextKeyElsewhere(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	require.Error(t, trail.NameNextKey(t.Context(), "nonsense", Person{}))
	require.Error(t, trail.NameNextKey(t.Context(), trail.PublicKey(), Person{}))
	elsewhere, _ := signerOptions(t)
	require.NoError(t, trail.NameNextKey(t.Context(), elsewhere.PublicKey, Person{}))
	require.NoError(t, trail.Close(t.Context()))
	elsewhere.PinFile = o.KeyFile + ".checkpoint"
	next := openTrail(t, st, elsewhere)
	require.True(t, next.Generations()[1].Endorsed)
	require.True(t, tlogproof.SamePublicKey(elsewhere.PublicKey, next.PublicKey()))
}

func TestPublicKeyOfAPEMFile(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	text, err := PublicKey("example.com/trail", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.NoError(t, err)
	want, err := note.NewEd25519VerifierKey("example.com/trail", public)
	require.NoError(t, err)
	require.Equal(t, want, text)
	_, err = PublicKey("a name", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.Error(t, err)
	_, err = PublicKey("example.com/trail", []byte("nonsense"))
	require.Error(t, err)
	file := filepath.Join(t.TempDir(), "key")
	_, err = GenerateKey(file, "a+b")
	require.Error(t, err)
	require.NoFileExists(t, file)
	_, err = GenerateKey(file, "example.com/a")
	require.NoError(t, err)
	_, err = GenerateKey(file, "example.com/a")
	require.ErrorContains(t, err, "exists")
}

// requireChain wants so many generations, each key named by the last entry of the one before.
func requireChain(t *testing.T, trail *Trail, keys ...string) {
	t.Helper()
	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Len(t, report.Generations, len(keys))
	for i, g := range report.Generations {
		require.Equal(t, keys[i], g.PublicKey)
		if i == 0 {
			continue
		}
		require.True(t, g.Endorsed, "generation %d", i)
		last, err := trail.Get(t.Context(), g.Base-1)
		require.NoError(t, err)
		require.Equal(t, TypeRotated, last.Type, "the entry before generation %d", i)
		require.EqualValues(t, g.Base, report.Generations[i-1].Base+report.Generations[i-1].Size, "all entries before generation %d are signed", i)
	}
}

// A running trail replaces its key, twice in a row, while others append; then it is opened
// again, and the chain of keys holds.
func TestARunningTrailRotatesItsKey(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 3)
	keys := []string{trail.PublicKey()}
	ctx, stop := context.WithCancel(t.Context())
	var appending sync.WaitGroup
	for i := range 3 {
		appending.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := trail.Append(ctx, testEntry(100*i+n%100))
				require.True(t, err == nil || ctx.Err() != nil, "%v", err)
			}
		})
	}
	for range 2 {
		public, err := trail.Rotate(t.Context(), Person{})
		require.NoError(t, err)
		require.Equal(t, public, trail.PublicKey())
		keys = append(keys, public)
	}
	stop()
	appending.Wait()
	require.False(t, tlogproof.SamePublicKey(keys[1], keys[2]))
	require.NoFileExists(t, nextFile(o.KeyFile))
	require.NoError(t, trail.Sign(t.Context()))
	requireChain(t, trail, keys...)
	require.NoError(t, trail.Close(t.Context()))
	again := openTrail(t, st, o)
	requireChain(t, again, keys...)
	_, err := again.Append(t.Context(), testEntry(0))
	require.NoError(t, err)
	require.NoError(t, again.Sign(t.Context()))
	requireChain(t, again, keys...)
}

// The witnesses sign the checkpoint with the entry that names the new key, before they are
// asked about the new generation.
func TestWitnessesSignTheLastCheckpointOfAKey(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	var mu sync.Mutex
	signed := map[string]int64{}
	trail := openTrail(t, st, o)
	witnesses(t, trail, func(_ context.Context, offer Offer) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		signed[offer.Origin] = offer.Size
		return nil, nil
	})
	appendEntries(t, trail, 0, 3)
	first := trail.PublicKey()
	public, err := trail.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	mu.Lock()
	require.EqualValues(t, 4, signed["example.com/trail"], "with the entry that names the new key")
	mu.Unlock()
	requireChain(t, trail, first, public)
}

// A rotation that cannot make a key, or name it, leaves the old key in use; one that cannot
// begin the new generation has the trail begin it as soon as it can. Then it is done again.
func TestARotationThatFails(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	full := errors.New("no space left on device")
	var failing func() bool
	for _, name := range []string{EntriesLog, CheckpointsLog} {
		st.log(name).failing = func() error {
			if failing != nil && failing() {
				return full
			}
			return nil
		}
	}
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 3)
	require.NoError(t, trail.Sign(t.Context()))
	first := trail.PublicKey()

	require.NoError(t, os.Mkdir(nextFile(o.KeyFile), 0o700)) // nothing can be written there
	_, err := trail.Rotate(t.Context(), Person{})
	require.Error(t, err)
	require.NoError(t, os.Remove(nextFile(o.KeyFile)))
	require.Equal(t, first, trail.PublicKey())

	set := func(f func() bool) {
		require.NoError(t, trail.lock(t.Context()))
		defer trail.unlock()
		failing, trail.lastTry = f, time.Time{} // tried again at once
	}
	set(func() bool { return true })
	_, err = trail.Rotate(t.Context(), Person{})
	require.ErrorIs(t, err, full)
	set(nil)
	require.Equal(t, first, trail.PublicKey())
	require.FileExists(t, nextFile(o.KeyFile), "the next rotation takes it up")
	prepared, err := nextKey(o.KeyFile)
	require.NoError(t, err)

	set(func() bool { // once the new key is in its place
		_, err := os.Stat(nextFile(o.KeyFile))
		return errors.Is(err, fs.ErrNotExist)
	})
	_, err = trail.Rotate(t.Context(), Person{})
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "is replaced by "+prepared)
	set(nil)
	_, err = trail.Append(t.Context(), testEntry(9))
	require.NoError(t, err)
	require.NoError(t, trail.Sign(t.Context()))
	second := trail.PublicKey()
	require.True(t, tlogproof.SamePublicKey(prepared, second))
	requireChain(t, trail, first, second)
	third, err := trail.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	requireChain(t, trail, first, second, third)
}

// Whoever reads the entry that opens a generation at once is told its place in that generation,
// though the generation is still being begun.
func TestTheEntryThatOpensAGenerationHasItsPlaceThere(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	var trail *Trail
	var base int64
	placed := make(chan Place, 1)
	st.log(EntriesLog).appended = func(pos store.Pos) {
		if trail == nil || int64(pos) != base+1 {
			return
		}
		e, err := trail.Get(t.Context(), base)
		if assert.NoError(t, err); e.Type != TypeGeneration {
			return
		}
		go func() {
			place, err := trail.Place(t.Context(), e)
			assert.NoError(t, err)
			placed <- place
		}()
		select { // whoever does not wait for the generation answers now
		case place := <-placed:
			placed <- place
		case <-time.After(50 * time.Millisecond):
		}
	}
	opened := openTrail(t, st, o)
	appendEntries(t, opened, 0, 3)
	require.NoError(t, opened.Sign(t.Context()))
	require.NoError(t, opened.lock(t.Context())) // as the log is called
	trail, base = opened, 4                      // after the entry that names the key
	opened.unlock()
	_, err := opened.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	place := <-placed
	require.EqualValues(t, base, place.Index)
	require.EqualValues(t, 1, place.Size)
	require.Equal(t, "example.com/trail/from-4", place.Origin)
}

// A key that is not in a file is not replaced.
func TestAKeyElsewhereIsNotRotated(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o, _ := signerOptions(t)
	_, err := openTrail(t, st, o).Rotate(t.Context(), Person{})
	require.ErrorContains(t, err, "not in a file")
}

// The entry that names the new key cannot be read by the time when the new key is in its place. The relay knows
// what it did, and goes on under the new key.
func TestARotationWhoseEntryIsLostGoesOn(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 2)
	require.NoError(t, trail.Sign(t.Context()))
	entries := st.log(EntriesLog)
	require.NoError(t, trail.lock(t.Context()))
	st.log(CheckpointsLog).appended = func(store.Pos) {
		entries.mu.Lock()
		defer entries.mu.Unlock()
		entries.lost = map[store.Pos]bool{3: true, 4: true, 5: true} // all that name a key
	}
	trail.unlock()
	public, err := trail.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	require.Equal(t, public, trail.PublicKey())
	require.Len(t, trail.Generations(), 2)
}
