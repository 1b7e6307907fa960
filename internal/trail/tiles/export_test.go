package tiles

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// An export has the files themselves; an older or damaged one is brought up to date.
func TestAnExportHasTheFilesOfTheRelay(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h.close()
	require.NoError(t, os.Remove(h.options.KeyFile))
	h.open() // another generation
	h.add(long(301))
	h.run()
	want := files(t, h.store.dir)
	dir := filepath.Join(t.TempDir(), "export")
	whole := func() {
		t.Helper()
		var ended, all int64
		list, err := h.store.Export(t.Context(), dir, func(done, total int64) { ended, all = done, total })
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.EqualValues(t, []int64{302, 302}, []int64{ended, all})
		require.Equal(t, want, files(t, dir))
	}
	whole()
	for file, change := range map[string]func(text string) string{
		"0/checkpoint": func(string) string { return "" }, "0/tile/0/000": func(string) string { return "damage" },
		"0/tile/entries/000": flip, "0/tile/entries/001.p/44": func(text string) string { return text + "more" },
		"0/checkpoints": flip, "1/checkpoints": func(string) string { return "" }, "1/records": nil,
	} {
		path := filepath.Join(dir, file)
		if change == nil {
			require.NoError(t, os.RemoveAll(path))
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(change(string(text))), 0o600))
	}
	whole()
}

// An older export is brought up to date; one of another history, or a newer one, is refused.
func TestAnExportContinuesAnOlderOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	older, dir := filepath.Join(t.TempDir(), "older"), t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(h.store.dir)))
	_, err := h.store.Export(t.Context(), dir, nil)
	require.NoError(t, err)
	h.publish(300, 800)
	h.run()
	_, err = h.store.Export(t.Context(), dir, nil)
	require.NoError(t, err)
	require.Equal(t, files(t, h.store.dir), files(t, dir))
	_, err = Open(older).Export(t.Context(), dir, nil)
	require.ErrorContains(t, err, "has 800 entries, and this log only 300")
	require.Equal(t, files(t, h.store.dir), files(t, dir))

	// The same key has signed another history: somebody has put a trail back, and gone on.
	key, err := os.ReadFile(h.options.KeyFile)
	require.NoError(t, err)
	_, unused, marked := strings.Cut(string(key), "\n")
	require.True(t, marked)
	folder := t.TempDir()
	other := &house{tb: t, kept: keptIn(t, folder), store: Open(filepath.Join(folder, Dir)), options: h.options}
	other.options.KeyFile = filepath.Join(folder, "audit.key")
	require.NoError(t, os.WriteFile(other.options.KeyFile, []byte(unused), 0o600))
	other.open()
	other.close()
	trailtest.Fill(t, other.kept, 900, func(i int) audit.Entry { return entry(i + 1) })
	other.open()
	other.sign()
	other.run()
	require.Equal(t, h.key(0), other.key(0))
	_, err = other.store.Export(t.Context(), dir, nil)
	require.ErrorContains(t, err, "has another history than this log")
	require.Equal(t, files(t, h.store.dir), files(t, dir))
}

// Nothing is written through a symbolic link that somebody has planted in the export's folder.
func TestAnExportFollowsNoPlantedLink(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	for name, plant := range map[string]func(dir, elsewhere string) error{
		"the folder": func(dir, elsewhere string) error { return errors.Join(os.Remove(dir), os.Symlink(elsewhere, dir)) },
		"a log":      func(dir, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(dir, "0")) },
		"the tiles": func(dir, elsewhere string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "0"), 0o700), os.Symlink(elsewhere, filepath.Join(dir, "0", "tile")))
		},
		"the history": func(dir, elsewhere string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "0"), 0o700), os.Symlink(filepath.Join(elsewhere, "file"), filepath.Join(dir, "0", proof.HistoryFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "file"), []byte("precious"), 0o600))
			require.NoError(t, plant(dir, elsewhere))
			_, err := h.store.Export(t.Context(), dir, nil)
			require.ErrorContains(t, err, "symbolic link")
			require.Equal(t, map[string]string{"file": "precious"}, files(t, elsewhere))
		})
	}
}

// A damaged source is not exported as if it were whole.
func TestAnExportOfDamagedFilesFails(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	bundle := filepath.Join(h.store.Log(0).dir, "tile", "entries", "000")
	data, err := os.ReadFile(bundle)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bundle, []byte(flip(string(data))), 0o600))
	dir := t.TempDir()
	_, err = h.store.Export(t.Context(), dir, nil)
	require.ErrorIs(t, err, errDamaged)
	require.NoFileExists(t, filepath.Join(dir, "0", proof.CheckpointFile))
	require.NoFileExists(t, filepath.Join(dir, "0", proof.HistoryFile))
}

// Whoever has the key signs an absurd size in no time. It costs no memory, and is refused.
func TestAnAbsurdSizeIsNotExported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, public, err := note.GenerateKey(rand.Reader, "example.com/trail")
	require.NoError(t, err)
	plain, err := note.NewSigner(secret)
	require.NoError(t, err)
	timed, err := cosign.NewSignerForCosignatureV1(secret)
	require.NoError(t, err)
	text, err := note.Sign(&note.Note{Text: proof.Checkpoint{Origin: "example.com/trail", Size: 1 << 50}.String()}, plain, timed)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "0"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0", proof.CheckpointFile), text, 0o600))
	require.NoError(t, Open(dir).Log(0).addLines([]proof.Line{{Seq: 1, Key: public, Checkpoint: string(text)}}))
	_, err = Open(dir).Export(t.Context(), filepath.Join(t.TempDir(), "export"), nil)
	require.ErrorIs(t, err, errDamaged)
}
