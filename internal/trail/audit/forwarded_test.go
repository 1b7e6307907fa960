package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// forwardedTrail is a trail of 20 entries whose sinks were given the first n.
func forwardedTrail(t *testing.T, n int64) *damageable {
	t.Helper()
	d := newDamageable(t)
	d.o.ForwardedFile = filepath.Join(t.TempDir(), "forwarded")
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 0)
	for index := range n {
		e, err := trail.Get(t.Context(), index)
		require.NoError(t, err)
		p, err := trail.Place(t.Context(), e)
		require.NoError(t, err)
		trail.Forwarded(p)
	}
	require.NoError(t, trail.Close(t.Context()))
	return d
}

// putPinBack pins the last of the first n checkpoints, none for 0.
func (d *damageable) putPinBack(t *testing.T, n int) {
	t.Helper()
	require.NoError(t, os.Remove(d.o.KeyFile+".checkpoint"))
	if n == 0 {
		return
	}
	c, err := decodeKept(&store.Record{Pos: 1, Draft: *d.checkpoints[n-1]})
	require.NoError(t, err)
	require.NoError(t, writePin(d.o.KeyFile+".checkpoint", []byte(c.Note)))
}

// Streams and pin are put back to an earlier state together: the note of the newest entry
// given to the sinks tells. The trail names it once, keeps the indexes that are taken, and
// goes on in a tree of its own, since the sinks have another root.
func TestATrailPutBackIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries, checkpoints int
	}{"signed entries": {10, 5}, "and an unsigned one": {11, 5}, "all of it": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := forwardedTrail(t, 20)
			d.putPinBack(t, c.checkpoints)
			trail, st := d.reopen(t, d.entries[:c.entries], d.checkpoints[:c.checkpoints], 0)
			o := openingOf(t, trail)
			problem := tlogproof.Finding{Kind: tlogproof.KindTruncated, From: int64(c.entries), To: 19, Detail: "the trail ends before them, and the sinks were given them"}
			require.Contains(t, o.Problems, problem)
			require.True(t, len(o.Problems) == 1 || c.checkpoints == 0, "%v", o.Problems) // no pin is left then
			index, err := trail.Append(t.Context(), testEntry(1))
			require.NoError(t, err)
			require.EqualValues(t, 21, index, "no index is given twice")
			require.NoError(t, trail.Close(t.Context()))
			again := openTrail(t, st, d.o)
			require.Len(t, again.Generations(), 2)
			e, err := again.Get(t.Context(), 21)
			require.NoError(t, err)
			p, err := again.Place(t.Context(), e)
			require.NoError(t, err)
			again.Forwarded(p)
			size := again.Size()
			require.NoError(t, again.Close(t.Context()))
			require.Equal(t, size, openTrail(t, st, d.o).Size(), "nothing is named twice")
		})
	}
}

// The trail was put back, and has gone on to other entries: its size says nothing.
func TestATrailWithAnotherPastIsFound(t *testing.T) {
	t.Parallel()
	d := forwardedTrail(t, 20)
	st, _ := startStore(t, t.TempDir())
	replace(t, st, EntriesLog, copyAll(d.entries[:10]), 0)
	replace(t, st, CheckpointsLog, copyAll(d.checkpoints[:5]), 0)
	d.putPinBack(t, 5)
	elsewhere := d.o
	elsewhere.ForwardedFile = ""
	trail := openTrail(t, st, elsewhere)
	appendAt(t, trail, 15)
	require.NoError(t, trail.Close(t.Context()))

	trail = openTrail(t, st, d.o)
	require.EqualValues(t, 26, trail.Size(), "one entry names it")
	problems := openingOf(t, trail).Problems
	require.Len(t, problems, 1)
	require.Equal(t, "forwarded", problems[0].Kind)
	require.Contains(t, problems[0].String(), "the sinks were given entry 19 under the root "+d.root.String())
	require.Empty(t, trail.view.Load().unsound, "the entries count")
	require.NoError(t, trail.Close(t.Context()))
	require.EqualValues(t, 26, openTrail(t, st, d.o).Size(), "once")

	report, unnamed, err := VerifyOffline(t.Context(), d.o, openTrail(t, st, elsewhere).Reader)
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	require.Empty(t, unnamed)
}

// A whole trail agrees with any note of it, and a damaged note says nothing.
func TestANoteOfAWholeTrail(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, 1, 7, 20} {
		d := forwardedTrail(t, n)
		trail, _ := d.reopen(t, d.entries, d.checkpoints, 0)
		requireWhole(t, trail, 20)
	}
	d := forwardedTrail(t, 20)
	text, err := os.ReadFile(d.o.ForwardedFile)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(d.o.ForwardedFile, text, 0o600))
	trail, _ := d.reopen(t, d.entries[:20:20], d.checkpoints, 0)
	requireWhole(t, trail, 20)
}

func FuzzParseForwarded(f *testing.F) {
	path := filepath.Join(f.TempDir(), "forwarded")
	root := leafHash([]byte("x"))
	require.NoError(f, writeForwarded(path, Place{Index: 9, Origin: "o", Leaf: root, Size: 10, Root: &root}))
	line, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(line)
	f.Add([]byte("1 {}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if p := parseForwarded(line); p != nil {
			require.NotNil(t, p.Root)
			require.Positive(t, p.Size)
		}
	})
}

// A generation is lost before it was signed, and only the note for the sinks tells of it. Its place is kept, and is
// named at once: a second start has nothing to add.
func TestTheKeptPlaceOfALostGenerationIsNamed(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery, o.ForwardedFile = time.Hour, filepath.Join(t.TempDir(), "forwarded")
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1) // and nothing more for an hour, except by Rotate
	_, err := trail.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	opening, err := trail.Get(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, TypeGeneration, opening.Type)
	place, err := trail.Place(t.Context(), opening)
	require.NoError(t, err)
	trail.Forwarded(place)

	d := damageable{o: o}
	d.o.KeyFile = copyKey(t, o.KeyFile, true)
	again, copied := d.reopen(t, records(t, st, EntriesLog)[:2], records(t, st, CheckpointsLog), 0)
	problems := openingOf(t, again).Problems
	require.Len(t, problems, 2)
	require.Equal(t, tlogproof.Finding{Kind: tlogproof.KindMissing, From: 2, To: 2, Detail: neverSigned}, problems[1])
	require.EqualValues(t, 4, again.Size())
	require.NoError(t, again.Close(t.Context()))
	require.EqualValues(t, 4, openTrail(t, copied, d.o).Size(), "a second start adds nothing")
}
