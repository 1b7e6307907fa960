package tiles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// archiver moves the entries before n, and notes its own entries in the trail.
func (h *house) archiver(dir string, n int) (*Archiver, *[]proof.Archived) {
	entered := &[]proof.Archived{}
	return &Archiver{
		Store: h.store, Generations: h.trail.Generations(), Dir: dir, Before: entry(n).Time,
		Enter: func(_ context.Context, a proof.Archived) error {
			h.requireUntouched(dir, a)
			if !slices.Contains(*entered, a) {
				*entered = append(*entered, a)
			}
			return nil
		},
	}, entered
}

// requireUntouched fails unless the archive is whole, and nothing is marked or removed yet.
func (h *house) requireUntouched(dir string, a proof.Archived) {
	h.tb.Helper()
	for number, g := range h.trail.Generations() {
		if g.Origin != a.Origin {
			continue
		}
		require.NoError(h.tb, Open(dir).Log(number).Check(h.tb.Context(), h.key(number), 0))
		require.NotContains(h.tb, files(h.tb, h.store.Log(number).dir)[MarkFile], fmt.Sprintf(`"tree_size": %d`, a.Size))
		for n := (a.From - g.Base) / proof.TileWidth; n < a.Size/proof.TileWidth; n++ {
			_, err := h.store.Log(number).Bundle(n, proof.TileWidth)
			require.NoError(h.tb, err)
		}
	}
}

// only leaves the files with a prefix.
func only(all map[string]string, prefixes ...string) map[string]string {
	some := map[string]string{}
	for name, data := range all {
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				some[name] = data
			}
		}
	}
	return some
}

// archivedHouse has 1300 entries, bundle 1 with a long one, and bundle 2 with one about the trail.
func archivedHouse(t *testing.T) *house {
	t.Helper()
	h := newHouse(t, 300)
	own := entry(600)
	own.Type = "trail.key_rotated"
	h.add(long(300))
	h.publish(301, 600)
	h.add(own)
	h.publish(601, 1300)
	h.run()
	return h
}

// publish appends entries [from, to) quickly.
func (h *house) publish(from, to int) {
	h.tb.Helper()
	h.close()
	trailtest.Fill(h.tb, h.kept, to-from, func(i int) audit.Entry { return entry(from + i) })
	h.open()
	h.sign()
}

func TestOldBundlesAreArchived(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	log, dir := h.store.Log(0), filepath.Join(t.TempDir(), "archive")
	before := files(t, log.dir)
	a, entered := h.archiver(dir, 1024)

	plan, err := a.Plan(t.Context())
	require.NoError(t, err)
	require.Len(t, plan, 1)
	require.Equal(t, []int64{0, 1023, 1024}, []int64{plan[0].From, plan[0].To, plan[0].Size})
	require.Equal(t, 4, plan[0].Files, "three bundles and a record; bundle 2 stays")
	require.Equal(t, before, files(t, log.dir))
	require.NoDirExists(t, dir)

	done, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, plan, done)
	require.Equal(t, plan, *entered)
	after := files(t, log.dir)
	gone := int64(0)
	for name, data := range before {
		if _, there := after[name]; !there {
			gone += int64(len(data))
		}
	}
	require.Equal(t, plan[0].Bytes, gone)
	require.Equal(t, []string{"tile/entries/002", "tile/entries/004", "tile/entries/005.p/20"}, slices.Sorted(maps.Keys(only(after, "tile/entries/"))))
	require.Empty(t, only(after, "records/"))
	require.Equal(t, only(before, "tile/0", "checkpoint"), only(after, "tile/0", "checkpoint"))

	archive := Open(dir).Log(0)
	require.NoError(t, archive.Check(t.Context(), h.key(0), 0), "the archive is a whole log")
	require.Equal(t, only(before, "tile/entries/001", "tile/entries/002", "records/"), only(files(t, archive.dir), "tile/entries/001", "tile/entries/002", "records/"))

	// A keeper misses nothing, and writes nothing again; other readers are told.
	require.NoError(t, log.Check(t.Context(), h.key(0), 0))
	var text strings.Builder
	k := h.keeper()
	k.log = textLogger(&text)
	k.fromFirst[0] = true
	require.NoError(t, k.Run(t.Context()))
	require.Equal(t, after, files(t, log.dir))
	require.Empty(t, text.String())
	_, err = log.Bundle(0, proof.TileWidth)
	require.ErrorIs(t, err, ErrArchived)
	require.ErrorContains(t, err, dir)
	require.NoError(t, h.store.Records("example.com/trail", 3, 4, func(int64, []byte) error { return errors.New("it is there") }))

	// The log grows on; a second archive goes on after the first one, in the same folder.
	h.publish(1300, 1600)
	h.run()
	a, entered = h.archiver(dir, 1590)
	done, err = a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, done, *entered)
	require.Equal(t, []int64{1024, 1535}, []int64{done[0].From, done[0].To})
	require.NoError(t, archive.Check(t.Context(), h.key(0), 0))
	require.NoError(t, log.Check(t.Context(), h.key(0), 0))

	done, err = a.Run(t.Context()) // again: nothing is left to do
	require.NoError(t, err)
	require.Empty(t, done)

	// Put back, the files are as they were.
	put(t, log.dir, with(merged(files(t, archive.dir), files(t, log.dir)), "checkpoints", files(t, log.dir)["checkpoints"]))
	h.run()
	require.NoError(t, log.Check(t.Context(), h.key(0), 0))
	require.Equal(t, before["tile/entries/000"], files(t, log.dir)["tile/entries/000"])
}

// merged has the files of both; b's count.
func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// An archive is an export of the whole trail, so a second one elsewhere begins with a copy of the first
// one. Without it nothing is moved.
func TestASecondArchiveElsewhere(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	before := files(t, h.store.Log(0).dir)
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	a, _ := h.archiver(first, 512)
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	partly := files(t, h.store.Log(0).dir)
	a, entered := h.archiver(second, 1300)
	_, err = a.Run(t.Context())
	require.ErrorIs(t, err, ErrArchived)
	require.ErrorContains(t, err, first)
	require.Empty(t, *entered)
	require.Equal(t, partly, files(t, h.store.Log(0).dir))

	require.NoError(t, os.RemoveAll(second))
	require.NoError(t, os.CopyFS(second, os.DirFS(first)))
	_, err = a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{512, 1279}, []int64{(*entered)[0].From, (*entered)[0].To})
	require.Equal(t, before, files(t, Open(second).Log(0).dir))
	require.NoError(t, Open(second).Log(0).Check(t.Context(), h.key(0), 0))
	require.NoError(t, h.store.Log(0).Check(t.Context(), h.key(0), 0))

	// An export goes on after a copy of an archive, too.
	export := Open(t.TempDir())
	_, err = h.store.Export(t.Context(), export.dir, nil)
	require.ErrorIs(t, err, ErrArchived)
	require.NoError(t, os.CopyFS(export.Log(1).dir, os.DirFS(Open(second).Log(0).dir)))
	_, err = h.store.Export(t.Context(), export.dir, nil)
	require.NoError(t, err)
	require.Equal(t, before, files(t, export.Log(1).dir))
}

// Each durable step of an archive, and the state that a crash leaves there: nothing is lost,
// and the next run ends the work.
func TestACrashWhileArchiving(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	log, dir := h.store.Log(0), filepath.Join(t.TempDir(), "archive")
	before := files(t, log.dir)
	a, _ := h.archiver(dir, 1024)
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	after, whole := files(t, log.dir), files(t, dir)
	marked := with(maps.Clone(before), MarkFile, after[MarkFile])
	halfGone := maps.Clone(marked)
	delete(halfGone, "tile/entries/000")
	noCheckpoint := maps.Clone(whole)
	delete(noCheckpoint, "0/checkpoint")
	for name, state := range map[string]struct{ live, archive map[string]string }{
		"nothing copied":       {before, nil},
		"one bundle copied":    {before, only(whole, "0/tile/entries/000")},
		"a write is under way": {before, map[string]string{"0/tile/entries/.000.1.tmp": "half"}},
		"no checkpoint yet":    {before, noCheckpoint},
		"all copied":           {before, whole},
		"marked":               {marked, whole},
		"some removed":         {halfGone, whole},
		"all removed":          {after, whole},
	} {
		put(t, log.dir, state.live)
		put(t, dir, state.archive)
		require.NoError(t, log.Check(t.Context(), h.key(0), 0), "%s: nothing may be missed", name)
		a, entered := h.archiver(dir, 1024)
		_, err := a.Run(t.Context())
		require.NoError(t, err, name)
		_, isMarked := state.live[MarkFile]
		require.Equal(t, isMarked, len(*entered) == 0, "%s: entered before the mark, and not behind it", name)
		require.Equal(t, after, files(t, log.dir), name)
		left := files(t, dir)
		maps.DeleteFunc(left, func(file, _ string) bool { return strings.HasSuffix(file, ".tmp") })
		require.Equal(t, whole, left, name)
	}
}

// Whatever is wrong with an archive, nothing is removed.
func TestABadArchiveMovesNothing(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	log := h.store.Log(0)
	before := files(t, log.dir)
	good := filepath.Join(t.TempDir(), "good")
	a, _ := h.archiver(good, 512)
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	whole, partly := files(t, good), files(t, log.dir)
	other := newHouse(t, 300) // the same name, another history and key
	other.run()
	foreign := filepath.Join(t.TempDir(), "foreign")
	b, _ := other.archiver(foreign, 299)
	_, err = b.Run(t.Context())
	require.NoError(t, err)
	for name, bad := range map[string]struct {
		archive map[string]string
		want    string
	}{
		"flipped bundle":     {with(maps.Clone(whole), "0/tile/entries/000", flip(whole["0/tile/entries/000"])), "damaged"},
		"flipped tile":       {with(maps.Clone(whole), "0/tile/0/000", flip(whole["0/tile/0/000"])), "damaged"},
		"flipped checkpoint": {with(maps.Clone(whole), "0/checkpoint", flip(whole["0/checkpoint"])), ""},
		"lost bundle":        {without(whole, "0/tile/entries/001"), "damaged"},
		"a large checkpoint": {with(maps.Clone(whole), "0/checkpoint", strings.Repeat("x", maxFile+1)), "more than any file"},
		"a large bundle":     {with(maps.Clone(whole), "0/tile/entries/000", strings.Repeat("x", maxFile+1)), "more than"},
		"other files":        {map[string]string{"notes.txt": "mine"}, "other files"},
		"another trail":      {files(t, foreign), ""},
	} {
		dir := filepath.Join(t.TempDir(), "archive")
		put(t, dir, bad.archive)
		put(t, log.dir, partly)
		a, entered := h.archiver(dir, 1024)
		_, err := a.Plan(t.Context())
		require.ErrorContains(t, err, bad.want, name)
		_, err = a.Run(t.Context())
		require.ErrorContains(t, err, bad.want, name)
		require.Empty(t, *entered, name)
		require.Equal(t, partly, files(t, log.dir), name)
		require.Equal(t, bad.archive, files(t, dir), "%s: the archive stays as it is", name)
	}
	put(t, log.dir, before)
	put(t, log.dir, with(maps.Clone(before), "tile/entries/001", flip(before["tile/entries/001"])))
	a, _ = h.archiver(filepath.Join(t.TempDir(), "archive"), 1024)
	_, err = a.Plan(t.Context())
	require.ErrorIs(t, err, errDamaged, "a dry run finds what the run would")
	put(t, log.dir, before)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(h.store.dir), link))
	for name, dir := range map[string]string{
		"by a link":          filepath.Join(link, "missing", "old"),
		"the data directory": filepath.Dir(h.store.dir), "within it": filepath.Join(h.store.dir, "old"), "above it": filepath.Dir(filepath.Dir(h.store.dir)),
		"not absolute": "archive",
	} {
		a, entered := h.archiver(dir, 1024)
		_, err := a.Run(t.Context())
		require.Error(t, err, name)
		require.Empty(t, *entered, name)
		require.Equal(t, before, files(t, log.dir), name)
	}
	// A link that somebody planted does not lead the relay's files elsewhere.
	planted, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(planted, "0"), 0o700))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(planted, "0", "tile")))
	a, entered := h.archiver(planted, 1024)
	_, err = a.Run(t.Context())
	require.ErrorContains(t, err, "symbolic link")
	require.Empty(t, *entered)
	require.Empty(t, files(t, elsewhere))
}

func without(all map[string]string, name string) map[string]string {
	all = maps.Clone(all)
	delete(all, name)
	return all
}

// A read-only folder, or a trail refusing entries, stops an archive before anything is
// removed; given again, it goes on.
func TestAnArchiveThatFailsHalfway(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	log, dir := h.store.Log(0), filepath.Join(t.TempDir(), "archive")
	before := files(t, log.dir)
	put(t, dir, map[string]string{"0/tile/entries": "a file where a folder has to be"})
	a, _ := h.archiver(dir, 1024)
	_, err := a.Run(t.Context())
	require.Error(t, err)
	require.Equal(t, before, files(t, log.dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "0/tile/entries")))
	a.Enter = func(context.Context, proof.Archived) error { return errors.New("the trail cannot be used") }
	_, err = a.Run(t.Context())
	require.ErrorContains(t, err, "the trail cannot be used")
	require.Equal(t, before, files(t, log.dir))
	ctx, cancel := context.WithCancel(t.Context())
	a, _ = h.archiver(dir, 1024)
	a.Enter = func(context.Context, proof.Archived) error { cancel(); return nil }
	_, err = a.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	marked := files(t, log.dir)
	require.Contains(t, marked[MarkFile], dir, "the mark comes before the first removal")
	delete(marked, MarkFile)
	require.Equal(t, before, marked)
	a, entered := h.archiver(dir, 1024)
	_, err = a.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, *entered)
	require.NotContains(t, files(t, log.dir), "tile/entries/000")
}

// A lost or damaged mark has the bundles written again: nothing is missing then.
func TestALostMarkBringsTheBundlesBack(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	log := h.store.Log(0)
	before := files(t, log.dir)
	a, _ := h.archiver(filepath.Join(t.TempDir(), "archive"), 1024)
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	after := files(t, log.dir)
	for _, mark := range []string{"", "[{"} {
		put(t, log.dir, with(maps.Clone(after), MarkFile, mark))
		want := with(maps.Clone(before), MarkFile, mark)
		h.keepUntil(func() bool { return maps.Equal(want, files(t, log.dir)) })
	}
}

// Entries without an old enough time stay.
func TestYoungEntriesStay(t *testing.T) {
	t.Parallel()
	h := archivedHouse(t)
	a, _ := h.archiver(filepath.Join(t.TempDir(), "archive"), 255)
	plan, err := a.Plan(t.Context())
	require.NoError(t, err)
	require.Empty(t, plan, "entry 255 is in the first bundle")
	a.Before = a.Before.Add(time.Nanosecond)
	plan, err = a.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(255), plan[0].To)
}

// Generations are archived one by one; the folder of another trail among them is left alone.
func TestEachGenerationIsArchived(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h.close()
	require.NoError(t, os.Remove(h.options.KeyFile))
	h.open()
	h.publish(301, 900)
	h.run()
	other := newHouseOf(t, "example.com/other", 300)
	other.run()
	put(t, h.store.Log(2).dir, files(t, other.store.Log(0).dir))
	dir := filepath.Join(t.TempDir(), "archive")
	a, entered := h.archiver(dir, 880)
	a.Before = time.Now() // after the entry that opens the generation
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, *entered, 2)
	require.Equal(t, []int64{0, 255, 300, 811}, []int64{(*entered)[0].From, (*entered)[0].To, (*entered)[1].From, (*entered)[1].To})
	require.Equal(t, int64(512), (*entered)[1].Size)
	for number := range 2 {
		require.NoError(t, h.store.Log(number).Check(t.Context(), h.key(number), 0))
		require.NoError(t, Open(dir).Log(number).Check(t.Context(), h.key(number), 0))
	}
	require.NoFileExists(t, filepath.Join(h.store.Log(2).dir, MarkFile))
	require.Equal(t, files(t, other.store.Log(0).dir), files(t, h.store.Log(2).dir))
	require.Contains(t, files(t, h.store.Log(1).dir), "tile/entries/000", "it names the generation before")
	require.NotContains(t, files(t, h.store.Log(1).dir), "tile/entries/001")
}
