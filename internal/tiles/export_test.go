package tiles

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// offline reads the trail's logs as those of a stopped relay are read.
func (h *house) offline() *audit.Reader {
	r, err := audit.OpenReader(h.tb.Context(), h.kept)
	require.NoError(h.tb, err)
	h.tb.Cleanup(r.Close)
	return r
}

// An export of the files and one of the logs are the files themselves; an older or
// damaged one is brought up to date.
func TestAnExportHasTheFilesOfTheRelay(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h.close()
	require.NoError(t, os.Remove(h.options.KeyFile))
	h.open() // another generation
	h.add(long(301))
	h.run()
	generations := h.trail.Generations()
	want := files(t, h.store.dir)
	trails := map[string]func() Trail{
		"files": func() Trail { s, err := h.store.Source(); require.NoError(t, err); return s },
		"logs":  func() Trail { return h.offline() },
	}
	for name, open := range trails {
		dir := filepath.Join(t.TempDir(), "export")
		export := func() {
			t.Helper()
			trail, known := open(), generations
			if s, isSource := trail.(*Source); isSource {
				known = s.Generations()
			} else {
				defer trail.(*audit.Reader).Close()
			}
			done := int64(0)
			list, err := Export(t.Context(), trail, known, dir, nil, func(n int64) { done = n })
			require.NoError(t, err, name)
			require.Len(t, list, 2)
			require.EqualValues(t, list[0].Size+list[1].Size, done)
			require.Equal(t, want, files(t, dir), name)
		}
		export()
		require.NoError(t, os.Remove(filepath.Join(dir, "0", "checkpoint")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "0", "tile", "0", "000"), []byte("damage"), 0o600))
		export()
	}
}

// Nothing is written through a symbolic link that somebody has planted in the export's folder.
func TestAnExportFollowsNoPlantedLink(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	source, err := h.store.Source()
	require.NoError(t, err)
	for name, plant := range map[string]func(dir, elsewhere string) error{
		"the folder": func(dir, elsewhere string) error { return errors.Join(os.Remove(dir), os.Symlink(elsewhere, dir)) },
		"a log":      func(dir, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(dir, "0")) },
		"the tiles": func(dir, elsewhere string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "0"), 0o700), os.Symlink(elsewhere, filepath.Join(dir, "0", "tile")))
		},
		"the history": func(dir, elsewhere string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "0"), 0o700), os.Symlink(filepath.Join(elsewhere, "file"), filepath.Join(dir, "0", HistoryFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "file"), []byte("precious"), 0o600))
			require.NoError(t, plant(dir, elsewhere))
			_, err := Export(t.Context(), source, source.Generations(), dir, nil, nil)
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
	source, err := h.store.Source()
	require.NoError(t, err)
	_, err = Export(t.Context(), source, source.Generations(), t.TempDir(), nil, nil)
	require.ErrorIs(t, err, errDamaged)
}
