package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// damageable is a trail of 20 entries with a checkpoint every two, as messages.
type damageable struct {
	o                    Options
	entries, checkpoints []*store.Draft
	public               string
	root                 tlog.Hash
}

func newDamageable(t *testing.T) *damageable {
	t.Helper()
	d := &damageable{o: testOptions(t)}
	d.o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, d.o)
	for i := range 10 {
		appendTogether(t, trail, 2*i, 2*i+2)
		require.NoError(t, trail.Sign(t.Context()))
	}
	require.NoError(t, trail.Close(t.Context()))
	d.entries, d.checkpoints = records(t, st, EntriesLog), records(t, st, CheckpointsLog)
	require.Len(t, d.checkpoints, 10)
	d.public, d.root = trail.PublicKey(), trail.treeNow().Root()
	return d
}

// appendTogether appends entries in one turn. A trail signs once by itself, after its first growth, which
// may be between two turns.
func appendTogether(t *testing.T, trail *Trail, from, to int) {
	t.Helper()
	require.NoError(t, trail.lock(t.Context()))
	defer trail.unlock()
	var group []*addition
	for i := from; i < to; i++ {
		a, err := trail.addition(testEntry(i), anyEntry)
		require.NoError(t, err)
		group = append(group, a)
	}
	require.NoError(t, trail.ready(t.Context()))
	require.NoError(t, trail.place(t.Context(), group, trail.next()))
}

// reopen opens a copy of the trail in a fresh store.
func (d *damageable) reopen(t *testing.T, entries, checkpoints []*store.Draft, deleted store.Pos) (*Trail, *testStore) {
	t.Helper()
	st, _ := startStore(t, t.TempDir())
	replace(t, st, EntriesLog, copyAll(entries), deleted)
	replace(t, st, CheckpointsLog, copyAll(checkpoints), 0)
	return openTrail(t, st, d.o), st
}

func openingOf(t *testing.T, trail *Trail) Opening {
	t.Helper()
	e, found, err := trail.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.True(t, found)
	var o Opening
	require.NoError(t, json.Unmarshal(e.Detail, &o))
	return o
}

// A lost signed entry keeps its leaf hash: the next checkpoint's tree continues the old
// one.
func TestALostEntryKeepsItsLeaf(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 8)
	require.Equal(t, []tlogproof.Finding{{Kind: "missing", From: 7, To: 7, Detail: "nothing stands there"}}, openingOf(t, trail).Problems)
	require.Len(t, trail.Generations(), 1)
	require.Equal(t, d.root, trail.Generations()[0].Root, "the tree is another")
	require.Equal(t, d.public, trail.PublicKey())
	require.NoError(t, trail.Sign(t.Context()))
	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	require.EqualValues(t, 21, report.Signed)
}

// Entries and their hashes are lost: the signed part of the old tree is still checked,
// and a new one begins with an entry naming the old.
func TestANewGeneration(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, st := d.reopen(t, d.entries[:15], d.checkpoints[:5], 0)
	o := openingOf(t, trail)
	require.Contains(t, o.Reason, "were signed, and are lost")
	require.EqualValues(t, 0, o.Previous.Base)
	require.EqualValues(t, 10, o.Previous.Size)
	require.Equal(t, d.public, o.Previous.PublicKey)
	require.Contains(t, o.Checkpoint, "\n20\n"+d.root.String(), "the last checkpoint, which stood next to the key")
	require.Equal(t, trail.PublicKey(), o.Key)
	require.EqualValues(t, 20, o.Found.Entries)
	index, err := trail.Append(t.Context(), testEntry(0))
	require.NoError(t, err)
	require.EqualValues(t, 21, index, "no index is given twice")
	require.NoError(t, trail.Close(t.Context()))

	again := openTrail(t, st, d.o)
	require.Len(t, again.Generations(), 2)
	require.EqualValues(t, 22, again.Size(), "the second start names nothing")
	require.Equal(t, "example.com/trail/from-20", again.Generations()[1].Origin)
	require.NotEqual(t, again.NameOf(19), again.NameOf(20), "events of both may have one index")
	report, err := again.Verify(t.Context())
	require.NoError(t, err)
	require.Equal(t, o.Previous.Size, report.Generations[0].Size, "the old generation is proven as far as it was")
	require.EqualValues(t, 2, report.Generations[1].Size)
}

// The key is lost, damaged, or another: a new one goes on with a new generation.
func TestALostKey(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, file string){
		"gone":    func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"damaged": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 30)) },
		"another": func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			_, err := generateKey(file, "example.com/other")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamageable(t)
			d.o.SalvageDir = filepath.Join(t.TempDir(), "salvage")
			spoil(t, d.o.KeyFile)
			trail, st := d.reopen(t, d.entries, d.checkpoints, 0)
			o := openingOf(t, trail)
			require.Contains(t, o.Reason, "key")
			require.Equal(t, d.public, o.Previous.PublicKey)
			require.Equal(t, d.root, o.Previous.Root)
			require.EqualValues(t, 20, o.Previous.Size)
			require.NotEqual(t, d.public, trail.PublicKey())
			appendFrom := trail.Size()
			require.EqualValues(t, 21, appendFrom)
			require.NoError(t, trail.Close(t.Context()))
			again := openTrail(t, st, d.o)
			require.EqualValues(t, 21, again.Size())
			report, err := again.Verify(t.Context())
			require.NoError(t, err)
			require.NoError(t, report.Err(), "the old checkpoints are checked with the old key")
			kept, _ := filepath.Glob(filepath.Join(d.o.SalvageDir, "*"))
			if name == "damaged" {
				require.NotEmpty(t, kept)
			}
		})
	}
}

// A checkpoint of another key amid those of the trail's own counts for nothing.
func TestAForgedCheckpointIsNamed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	forger, err := generateKey(filepath.Join(t.TempDir(), "key"), "example.com/trail")
	require.NoError(t, err)
	forged := copyAll(d.checkpoints)
	text, err := signCheckpoint(t.Context(), forger, tree{}.With(tlog.Hash{1}, tlog.Hash{2}), "", testTime)
	require.NoError(t, err)
	kept, err := encodeKept(forger, text, testTime, tree{}, []tlog.Hash{{1}, {2}})
	require.NoError(t, err)
	forged[4] = &kept
	trail, _ := d.reopen(t, d.entries, forged, 0)
	o := openingOf(t, trail)
	require.Len(t, o.Problems, 1)
	require.Contains(t, o.Problems[0].String(), "checkpoint 5: it is signed with another key")
	require.Len(t, trail.Generations(), 1)
}

// A resource whose newest entry is damaged has the state of the one before, which is
// said; AppendIf goes by that, too.
func TestTheNewestSoundEntryCounts(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	for name, spoil := range map[string]func(m []*store.Draft) (msgs []*store.Draft, deleted store.Pos){
		"missing": func(m []*store.Draft) ([]*store.Draft, store.Pos) { return m, 20 },
		"altered": func(m []*store.Draft) ([]*store.Draft, store.Pos) { alter(m[19]); return m, 0 },
		"not JSON": func(m []*store.Draft) ([]*store.Draft, store.Pos) {
			m[19].Data = []byte("{")
			return m, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := *d
			copied.o.KeyFile = copyKey(t, d.o.KeyFile, true)
			entries, deleted := spoil(copyAll(d.entries))
			trail, _ := copied.reopen(t, entries, d.checkpoints, deleted)
			last, found, err := trail.Last(t.Context(), "acme", "live", "resource.1") // 19 is of it
			require.NoError(t, err)
			require.True(t, found)
			require.EqualValues(t, 16, last.Index)
			require.True(t, last.Unsure)
			_, err = trail.AppendIf(t.Context(), testEntry(19), 19)
			require.ErrorIs(t, err, ErrConflict)
			index, err := trail.AppendIf(t.Context(), testEntry(19), 16)
			require.NoError(t, err)
			last, _, err = trail.Last(t.Context(), "acme", "live", "resource.1")
			require.NoError(t, err)
			require.Equal(t, index, last.Index)
			require.False(t, last.Unsure, "what is entered anew is sure")
		})
	}
}

// Before anything was entered again the trail is all gone, and its key is there.
func TestAnEmptyTrailUnderAnOldKeyIsNamed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	d.o.KeyFile = copyKey(t, d.o.KeyFile, false)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, d.o)
	require.Contains(t, openingOf(t, trail).Reason, "nothing is left of all that the key has signed")
	require.NotEqual(t, d.public, trail.PublicKey(), "two trees have one origin")
	require.NoError(t, trail.Close(t.Context()))
	again := openTrail(t, st, d.o)
	require.Equal(t, trail.PublicKey(), again.PublicKey())
	require.EqualValues(t, 1, again.Size())
}

// A key that may not be read is not replaced: the trail waits for it.
func TestAKeyThatCannotBeReadIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	require.NoError(t, os.Mkdir(o.KeyFile, 0o700)) // reading a folder fails
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	_, _, err := trail.Last(t.Context(), "acme", "live", "resource.0")
	require.ErrorIs(t, err, ErrUnavailable)
	require.Empty(t, trail.PublicKey())
	require.Contains(t, trail.Remark(), "warning")
	require.NoError(t, os.Remove(o.KeyFile))
	waiting.Until(t, func() bool { return trail.PublicKey() != "" })
	appendEntries(t, trail, 0, 1)
}

// An entry is lost under a running relay: a follower gets all others, and the entry
// naming it, without a restart.
func TestDamageWhileRunningIsNamed(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 10)
	waitSigned(t, trail, 10)
	entries := records(t, st, EntriesLog)
	entries[3].Data = []byte("{") // cannot be decoded
	replace(t, st, EntriesLog, entries, 8)

	seen := followUntil(t, trail, 10, func(int64) error { return nil })
	require.Equal(t, []int64{0, 1, 2, 4, 5, 6, 8, 9, 10}, seen)
	last, _, err := trail.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.Equal(t, TypeDamaged, last.Type)
	require.EqualValues(t, 10, last.Index)
	require.Contains(t, string(last.Detail), `"from":7,"kind":"missing","to":7`)
	require.Contains(t, string(last.Detail), `"from":3,"kind":"misfiled","to":3`)
	waiting.Until(t, func() bool { return strings.Contains(trail.Remark(), "2 entries are damaged or lost") }) // shown after the entry
}

// The entries are gone under a running relay: it goes on after the signed ones.
func TestALogThatGoesAwayIsGoneOnWith(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 10)
	waitSigned(t, trail, 10)
	replace(t, st, EntriesLog, nil, 0)
	trail.suspect("the test says so")
	index, err := trail.Append(t.Context(), testEntry(0))
	require.NoError(t, err)
	require.EqualValues(t, 11, index, "behind the entry that names the loss")
	require.Len(t, trail.Generations(), 1, "the hashes are kept")
}

// An absurd size is signed in no time, by whoever has the key. It is named, costs nothing, and the
// trail goes on, whatever place it was put into.
func TestAbsurdSizesDecideNothing(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	key, err := d.o.loadKey()
	require.NoError(t, err)
	absurd := func(origin string) (before tree, note []byte) {
		named, err := key.named(origin)
		require.NoError(t, err)
		before, ok := tlogproof.EdgeOf(1<<50, []tlog.Hash{{1}})
		require.True(t, ok)
		note, err = signCheckpoint(t.Context(), named, before.With(tlog.Hash{2}), "", testTime)
		require.NoError(t, err)
		return before, note
	}
	for name, put := range map[string]func(t *testing.T, o *Options, checkpoints []*store.Draft) []*store.Draft{
		"among the checkpoints": func(t *testing.T, _ *Options, kept []*store.Draft) []*store.Draft {
			before, note := absurd(key.Name())
			draft, err := encodeKept(key, note, testTime, before, []tlog.Hash{{2}})
			require.NoError(t, err)
			return append(kept, &draft)
		},
		"of a late generation": func(t *testing.T, _ *Options, kept []*store.Draft) []*store.Draft {
			origin := key.Name() + "/from-900000000000000000"
			before, note := absurd(origin)
			named, err := key.named(origin)
			require.NoError(t, err)
			draft, err := encodeKept(named, note, testTime, before, nil)
			require.NoError(t, err)
			return append(kept, &draft)
		},
		"next to the key": func(t *testing.T, o *Options, kept []*store.Draft) []*store.Draft {
			_, note := absurd(key.Name())
			require.NoError(t, writePin(o.KeyFile+".checkpoint", note))
			return kept
		},
		"in the files": func(_ *testing.T, o *Options, kept []*store.Draft) []*store.Draft {
			_, note := absurd(key.Name())
			o.Files = published{{Checkpoint: string(note), Key: key.public}}
			return kept
		},
		"in the note for the sinks": func(t *testing.T, o *Options, kept []*store.Draft) []*store.Draft {
			o.ForwardedFile = filepath.Join(t.TempDir(), "forwarded")
			require.NoError(t, writeForwarded(o.ForwardedFile, Place{Index: 1 << 50, Origin: key.Name(), Size: 1<<50 + 1, Root: &tlog.Hash{3}}))
			return kept
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := *d
			copied.o.KeyFile = copyKey(t, d.o.KeyFile, true)
			checkpoints := put(t, &copied.o, copyAll(d.checkpoints))
			trail, st := copied.reopen(t, d.entries, checkpoints, 0)
			named := openingOf(t, trail).Problems
			require.Len(t, named, 1)
			require.Contains(t, named[0].String(), "far more than the log can have lost")
			require.Len(t, trail.Generations(), 1)
			index, err := trail.Append(t.Context(), testEntry(1))
			require.NoError(t, err)
			require.EqualValues(t, 21, index)
			require.NoError(t, trail.Close(t.Context()))
			again := openTrail(t, st, copied.o)
			require.EqualValues(t, 22, again.Size(), "a second start names it again: %s", spellOut(openingOf(t, again).Problems))
			report, err := again.Verify(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 22, report.Signed)
		})
	}
}
