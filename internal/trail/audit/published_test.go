package audit

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// published are files without entries.
type published []tlogproof.Line

func (p published) Published() []tlogproof.Line { return p }
func (published) History(func(tlogproof.Line))  {}

func (published) Tiles(string) tlog.TileReader { return nil }
func (published) Records(string, int64, int64, func(int64, []byte) error) error {
	return fs.ErrNotExist
}

// published are notes as the trail's files have them, under the key of the trail.
func (d *damageable) published(t *testing.T, checkpoints ...int) (list []tlogproof.Line) {
	t.Helper()
	for _, n := range checkpoints {
		c, err := decodeKept(&store.Record{Pos: 1, Draft: *d.checkpoints[n-1]})
		require.NoError(t, err)
		list = append(list, tlogproof.Line{Checkpoint: c.Note, Key: c.PublicKey})
	}
	return list
}

// Streams, key, pin and note are put back to an earlier state together: only the trail's
// files are ahead, and tell. The trail names it once, keeps the indexes that are taken, and
// goes on in a tree of its own.
func TestATrailBehindItsFilesIsFound(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	d.putPinBack(t, 5)
	all := d.published(t, len(d.checkpoints))
	trail, st := d.reopen(t, d.entries[:10], d.checkpoints[:5], 0)
	require.NoError(t, trail.Close(t.Context()))
	d.o.Files = published(all)
	trail = openTrail(t, st, d.o)
	require.Equal(t, []tlogproof.Finding{{Kind: "truncated", From: 10, To: 19, Detail: "the trail ends before them, and tlog/ has them"}}, openingOf(t, trail).Problems)
	index, err := trail.Append(t.Context(), testEntry(1))
	require.NoError(t, err)
	require.EqualValues(t, 21, index, "no index is given twice")
	require.NoError(t, trail.Close(t.Context()))
	for range 2 {
		again := openTrail(t, st, d.o)
		require.Len(t, again.Generations(), 2)
		require.EqualValues(t, 22, again.Size(), "nothing is named twice")
		require.NoError(t, again.Close(t.Context()))
	}
}

// The trail was put back, and went on without its files.
func TestATrailUnlikeItsFilesIsFound(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	d.putPinBack(t, 5)
	trail, st := d.reopen(t, d.entries[:10], d.checkpoints[:5], 0)
	appendAt(t, trail, 15)
	require.NoError(t, trail.Close(t.Context()))
	all := d.published(t, len(d.checkpoints))
	d.o.Files = published(all)
	trail = openTrail(t, st, d.o)
	problems := openingOf(t, trail).Problems
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "tlog/ has entry 19 under the root "+d.root.String())
	require.NoError(t, trail.Close(t.Context()))
	require.EqualValues(t, 26, openTrail(t, st, d.o).Size(), "once")
}

// The key was rotated, and all but the files was put back to before: their signer is unknown
// now. No index is given twice, and no generation's name.
func TestFilesUnderAnUnknownKey(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} { // before the new generation began
		d, other := newDamageable(t), newDamageable(t)
		d.putPinBack(t, 5)
		all := other.published(t, 3, len(other.checkpoints))
		d.o.Files = published(all)
		entries := d.entries[:10]
		if killed {
			entries = append(copyAll(entries), slices.Repeat([]*store.Draft{{Kind: kindLost}}, 10)...)
		}
		trail, st := d.reopen(t, entries, d.checkpoints[:5], 0)
		o := openingOf(t, trail)
		require.Equal(t, "tlog/ has later entries, signed with a key unknown to this trail", o.Reason, "%v %v", killed, o)
		require.EqualValues(t, 20, trail.Generations()[1].Base)
		require.EqualValues(t, 10, trail.Generations()[0].Size)
		require.Contains(t, spellOut(o.Problems), "tlog/ has a signed log of 20 entries")
		require.NoError(t, trail.Close(t.Context()))
		again := openTrail(t, st, d.o)
		require.EqualValues(t, trail.Size(), again.Size(), "something is named twice: %s", spellOut(openingOf(t, again).Problems))
		require.NoError(t, again.Close(t.Context()))
	}
}

// A stranger's log, one apart from this trail's end, or one out of all proportion keeps no places.
func TestForeignLogsThatDecideNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []tlogproof.Checkpoint{{Origin: "example.com/stranger", Size: 30}, {Origin: "example.com/trail", Size: 1 << 40}, {Origin: "example.com/trail/from-1000", Size: 3}} {
		d, l := newDamageable(t), testlog.New(t, c.Origin, 1, "")
		d.o.Files = published([]tlogproof.Line{{Checkpoint: string(l.Sign(c)), Key: l.Public}})
		trail, _ := d.reopen(t, d.entries, d.checkpoints, 0)
		require.Len(t, trail.Generations(), 1, c)
		require.EqualValues(t, 21, trail.Size(), c)
		require.Contains(t, spellOut(openingOf(t, trail).Problems), "tlog/ has a signed log", c)
		require.NoError(t, trail.Close(t.Context()))
	}
}

// Files that lack the newest entries, or are damaged, say nothing.
func TestFilesOfAWholeTrail(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	for name, list := range map[string][]tlogproof.Line{
		"none": nil, "behind": d.published(t, 4), "newest": d.published(t, len(d.checkpoints)),
		"damaged": {{Checkpoint: "x", Key: "y"}, {}}, "of a stranger, shorter": newDamageable(t).published(t, 2),
	} {
		d.o.Files = published(list)
		trail, st := d.reopen(t, d.entries, d.checkpoints, 0)
		requireWhole(t, trail, 20)
		require.NoError(t, trail.Close(t.Context()))
		again := openTrail(t, st, d.o)
		requireWhole(t, again, 20)
		require.EqualValues(t, 20, again.Size(), name)
		require.NoError(t, again.Close(t.Context()))
	}
}
