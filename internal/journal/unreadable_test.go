package journal

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// badSector has every read of a file fail with EIO, as the kernel does for this one.
func badSector(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/proc/self/mem", path))
	_, err := os.ReadFile(path)
	require.ErrorContains(t, err, "input/output error")
}

// folder puts a folder in a file's place.
func folder(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path, "file"), []byte("evidence"), 0o600))
}

// The disk cannot give one file of the journal's or of another stream: the start takes
// pushes, names what is lost, and keeps the file.
func TestAFileThatTheDiskDoesNotGive(t *testing.T) {
	t.Parallel()
	neighbouring, sound := newNeighbours(t), newWreck(t, 20, 5)
	events := datadir.StreamDir("", sound.names.events)
	other := datadir.StreamDir("", otherStream)
	copies := filepath.Join("marks", "descriptions")
	for _, file := range []string{
		events + "/msgs/2.blk", events + "/msgs/5.blk", events + "/msgs/index.db", events + "/meta.inf", events + "/meta.sum",
		events + "/obs/sink_k/o.dat", events + "/obs/sink_k/meta.inf",
		copies + "/" + sound.names.events + "/meta.inf", copies + "/" + sound.names.events + "/sink_k/meta.sum",
	} {
		for how, strike := range map[string]func(*testing.T, string){"folder": folder, "bad sector": badSector} {
			t.Run(how+" "+filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				w := sound.copied(t)
				strike(t, filepath.Join(w.dir, file))
				lost := w.account(t, "late")
				if !strings.HasSuffix(file, ".blk") {
					assert.Empty(t, lost)
				}
				assert.NotContains(t, lost, uint64(1), "of a sound block")
				if how == "folder" {
					assert.Len(t, salvagedWith(t, w.dir, "evidence"), 1)
				}
				assert.Zero(t, w.verify(t).Open())
			})
		}
	}
	for _, file := range []string{other + "/msgs/1.blk", other + "/msgs/index.db", other + "/meta.inf", other + "/obs/follower/o.dat"} {
		t.Run("folder "+filepath.Base(file)+" of another stream", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(neighbouring)))
			folder(t, filepath.Join(dir, file))
			left, named := neighbours(t, dir)
			if !strings.HasSuffix(file, ".blk") {
				assert.Equal(t, 30, left)
			}
			assert.NotEmpty(t, named)
			assert.Len(t, salvagedWith(t, dir, "evidence"), 1)
		})
	}
}

// salvagedWith lists the files of the salvage folder with a content.
func salvagedWith(t *testing.T, dir, content string) (found []string) {
	t.Helper()
	for path, text := range snapshot(t, filepath.Join(dir, datadir.SalvageDir)) {
		if text == content {
			found = append(found, path)
		}
	}
	return found
}

// A file that another user owns is not damaged: nothing is moved aside.
func TestAFileOfAnotherUserIsNoDamage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	sound := newNeighbours(t)
	for _, file := range []string{otherStream + "/msgs/1.blk", "KV_" + otherBucket + "/msgs/index.db", otherStream + "/meta.inf"} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(sound)))
		require.NoError(t, os.Chmod(datadir.StreamDir(dir, file), 0))
		_, err := streamserver.Connect(t.Context(), dir, testConfig, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, err, os.ErrPermission)
		assert.NotErrorIs(t, err, blockfile.ErrUnreadable)
		assert.ErrorContains(t, err, "nothing was changed; give the files to the relay's user")
		assert.NoDirExists(t, filepath.Join(dir, datadir.SalvageDir))
	}
}

// The folder's name has letters that a pattern gives a meaning.
func TestTheNameOfADataDirectoryIsNoPattern(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "relay[1]*")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for range 2 {
		j := open(t, dir, testConfig)
		j.push(t, relaytest.Events(3))
		j.shut(t)
	}
	v := (&wreck{dir: dir, cfg: testConfig}).verify(t)
	assert.Equal(t, uint64(6), v.Events)
	assert.Zero(t, v.Open())
}
