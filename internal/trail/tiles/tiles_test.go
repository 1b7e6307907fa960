package tiles

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// files are all files below a folder, by name, with their content.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	require.NoError(tb, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && !d.IsDir() {
			data, err = os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			all[filepath.ToSlash(name)] = string(data)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being written
		}
		return err
	}))
	return all
}

// put makes a folder have just these files.
func put(tb testing.TB, dir string, all map[string]string) {
	tb.Helper()
	require.NoError(tb, os.RemoveAll(dir))
	for name, data := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(tb, os.WriteFile(path, []byte(data), 0o600))
	}
}

func TestEveryEntryIsProvenFromTheFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 600)
	h.add(long(600))
	h.run()
	h.requireWhole(0, 601)
	for _, n := range []int64{0, 1, 255, 256, 511, 512, 599} {
		require.Equal(t, message(t, int(n)), string(h.prove(0, n)))
	}
	d, isDigest := proof.ParseDigest(h.prove(0, 600))
	require.True(t, isDigest)
	record, err := h.store.Log(0).Record(d)
	require.NoError(t, err)
	var e audit.Entry
	require.NoError(t, json.Unmarshal(record, &e))
	require.JSONEq(t, string(long(600).After), string(e.After))
	pin, err := os.ReadFile(h.options.KeyFile + ".checkpoint")
	require.NoError(t, err)
	signed, _, err := h.store.Log(0).Checkpoint()
	require.NoError(t, err)
	require.Equal(t, string(pin), string(signed))
	require.ElementsMatch(t, []string{
		"checkpoint", "checkpoints", "tile/0/000", "tile/0/001", "tile/0/002.p/89", "tile/1/000.p/2",
		"tile/entries/000", "tile/entries/001", "tile/entries/002.p/89", d.Path(),
	}, names(files(t, h.store.Log(0).dir)))
}

func names(all map[string]string) (list []string) {
	for name := range all {
		list = append(list, name)
	}
	return list
}

// A log grows by whatever number of entries, and always has the files of one written at once.
func TestAGrowingLogHasTheFilesOfOneWrittenAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 254)
	size := 254
	for _, more := range []int{0, 1, 1, 1, 253, 2} {
		for range more {
			_, err := h.trail.Append(t.Context(), entry(size))
			require.NoError(t, err)
			size++
		}
		h.sign()
		h.run()
		h.requireWhole(0, int64(size))
		grown := files(t, h.store.Log(0).dir)
		fresh := Open(filepath.Join(t.TempDir(), "fresh"))
		require.NoError(t, NewKeeper(fresh, h.trail, h.trail.Generations, nil).Run(t.Context()))
		require.Equal(t, files(t, fresh.Log(0).dir), grown)
	}
}

// Each durable step of a change, and the state that a crash leaves there.
func TestACrashAtAnyStep(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	dir := h.store.Log(0).dir
	before := files(t, dir)
	h.add(entry(300), long(301))
	h.run()
	after := files(t, dir)
	state := func(added ...string) map[string]string {
		all := maps.Clone(before)
		for _, name := range added {
			require.Contains(t, after, name)
			all[name] = after[name]
		}
		return all
	}
	tiles := []string{"tile/0/001.p/46", "tile/entries/001.p/46"}
	for name := range after {
		if strings.HasPrefix(name, "records/") {
			tiles = append(tiles, name)
		}
	}
	for name, all := range map[string]map[string]string{
		"before all":           state(),
		"one tile":             state(tiles[0]),
		"one bundle":           state(tiles[1]),
		"tiles":                state(tiles...),
		"history":              state(append(tiles, "checkpoints")...),
		"checkpoint":           state(append(tiles, "checkpoints", "checkpoint")...),
		"history torn":         torn(state(append(tiles, "checkpoints")...), "checkpoints", 30),
		"temporary file":       with(state(), "tile/0/.001.p.123.tmp", "half"),
		"a write of the files": with(state(), "tile/entries/001.p/.46.123.tmp", "half"),
	} {
		put(t, dir, all)
		_, c, err := h.store.Log(0).Checkpoint()
		require.NoError(t, err, name)
		require.NoError(t, h.store.Log(0).Check(t.Context(), h.key(0), 0), "%s: the checkpoint is ahead of its tiles (%d)", name, c.Size)
		h.run()
		h.requireWhole(0, 302)
		left := files(t, dir)
		for extra := range left {
			if strings.HasSuffix(extra, ".tmp") {
				delete(left, extra)
			}
		}
		require.Equal(t, after, left, name)
	}
}

func torn(all map[string]string, name string, bytes int) map[string]string {
	all[name] = all[name][:len(all[name])-bytes]
	return all
}

func with(all map[string]string, name, data string) map[string]string {
	all[name] = data
	return all
}

// Whatever is lost or damaged is written again from the trail.
func TestLostAndDamagedFilesAreWrittenAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 600)
	h.add(long(600))
	h.run()
	dir := h.store.Log(0).dir
	good := files(t, dir)
	for i, name := range slices.Sorted(maps.Keys(good)) {
		all := maps.Clone(good)
		if all[name] = flip(good[name]); i%2 == 0 {
			delete(all, name)
		}
		put(t, dir, all)
		h.keepUntil(func() bool { return maps.Equal(good, files(t, dir)) })
	}
	all := maps.Clone(good)
	const first = "tile/entries/000"
	all[first] += string(proof.AppendBundle(nil, []byte("one more")))
	put(t, dir, all)
	h.keepUntil(func() bool { return maps.Equal(good, files(t, dir)) })
	put(t, dir, nil) // all of it
	h.keepUntil(func() bool { return maps.Equal(good, files(t, dir)) })
}

// keepUntil runs a keeper until done.
func (h *house) keepUntil(done func() bool) {
	h.tb.Helper()
	ctx, cancel := context.WithCancel(h.tb.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.keeper().Keep(ctx)
	}()
	waiting.Until(h.tb, done)
	cancel()
	<-ended
}

func flip(data string) string {
	b := []byte(data)
	b[len(b)/2] ^= 1
	return string(b)
}

// A lost key begins a generation: a log of its own, and the old one stays.
func TestEachGenerationHasAFolder(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	old := files(t, h.store.Log(0).dir)
	h.close()
	require.NoError(t, os.Remove(h.options.KeyFile))
	h.open()
	h.add(entry(301))
	h.run()
	require.Len(t, h.trail.Generations(), 2)
	require.Equal(t, old, files(t, h.store.Log(0).dir))
	h.requireWhole(0, 300)
	h.requireWhole(1, 2) // the entry that opens it, and ours
	require.Equal(t, message(t, 301), regexp.MustCompile(`"salt":"[A-Z2-7]+",`).ReplaceAllString(string(h.prove(1, 1)), ""))
	list, err := h.store.Logs()
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Contains(t, list[1].Origin, "/from-300")
	require.NoError(t, os.RemoveAll(h.store.dir))
	h.run()
	h.requireWhole(0, 300)
	h.requireWhole(1, 2)
}

// A trail that was rolled back does not take its published log with it.
func TestTheLogOfARolledBackTrailStays(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100)
	other := newHouse(t, 0)
	other.close()
	for _, stream := range []string{audit.EntriesLog, audit.CheckpointsLog} { // as they are now
		h.copyLog(other, stream)
	}
	pin, err := os.ReadFile(h.options.KeyFile + ".checkpoint")
	require.NoError(t, err)
	h.add(entry(100))
	h.run()
	published := files(t, h.store.Log(0).dir)
	key, err := os.ReadFile(h.options.KeyFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other.options.KeyFile, key, 0o600))
	require.NoError(t, os.WriteFile(other.options.KeyFile+".checkpoint", pin, 0o600))
	other.open()
	other.store = h.store
	other.run() // the trail itself names it: see audit.Options.Files
	require.Equal(t, published, files(t, h.store.Log(0).dir))
	require.NoError(t, h.store.Log(0).Check(t.Context(), h.key(0), 0), "nothing of it is to be written again")
}

// What the trail itself lacks is no damage to its files: they would be written again at each start.
func TestALostCheckpointIsNoDamageToTheFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.add(entry(300))
	h.add(entry(301))
	damaged := newHouse(t, 0)
	damaged.close()
	h.copyLog(damaged, audit.EntriesLog)
	kept := h.drafts(audit.CheckpointsLog)
	require.Greater(t, len(kept), 2)
	kept[1].Data = []byte(flip(string(kept[1].Data)))
	damaged.append(audit.CheckpointsLog, kept)
	damaged.options = h.options
	h.close()
	damaged.open()
	damaged.sign()
	damaged.run()
	log := damaged.store.Log(0)
	history, err := os.ReadFile(log.path(proof.HistoryFile))
	require.NoError(t, err)
	require.NotContains(t, string(history), `{"seq":2,`)
	require.NoError(t, log.Check(t.Context(), damaged.key(0), 0))
}

// A line whose signature is spelled in another way is written again: whoever verifies the history
// wants each byte to be the relay's. So is a history with megabytes that have no line's end.
func TestAnOddlySpelledHistoryIsWrittenAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	log := h.store.Log(0)
	want := files(t, log.dir)
	history := want[proof.HistoryFile]
	at := strings.LastIndex(history, "==\\n") - 1 // the last digit of a signature: its lowest bits say nothing
	require.Positive(t, at)
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	odd := digits[strings.IndexByte(digits, history[at])^1]
	for _, damaged := range []string{history[:at] + string(odd) + history[at+1:], strings.Repeat("\x00", 3<<20) + "\n" + history, history + strings.Repeat("\x00", 3<<20)} {
		require.NoError(t, os.WriteFile(log.path(proof.HistoryFile), []byte(damaged), 0o600))
		require.ErrorIs(t, log.Check(t.Context(), h.key(0), 0), errDamaged)
		k := h.keeper()
		k.damaged(0, log, errDamaged)
		require.NoError(t, k.Run(t.Context()))
		require.Equal(t, want, files(t, log.dir))
	}
}

// A trail put back to before a rotation can give an origin twice. The files of the forgotten key
// are evidence, and its only copy.
func TestTheLogOfAnotherKeyStays(t *testing.T) {
	t.Parallel()
	before, after := newHouse(t, 300), newHouse(t, 10)
	before.run()
	after.store = before.store
	after.run()
	after.run()
	before.requireWhole(0, 300)
	after.requireWhole(1, 10)
	require.NoError(t, os.Remove(before.store.Log(0).path(proof.CheckpointFile))) // its history says whose it is, too
	after.run()
	before.run()
	before.requireWhole(0, 300)
	after.requireWhole(1, 10)
}

// An older copy of the history, which lacks checkpoints before the newest one, is completed.
func TestAnOlderHistoryIsCompleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10)
	h.run()
	history := h.store.Log(0).path(proof.HistoryFile)
	older, err := os.ReadFile(history)
	require.NoError(t, err)
	for i := range 3 {
		h.add(entry(10 + i))
		h.sign()
		h.run()
	}
	whole, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Greater(t, len(whole), len(older))
	require.NoError(t, os.WriteFile(history, older, 0o600))
	h.run()
	again, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, string(whole), string(again))
	h.requireWhole(0, 13)
}
