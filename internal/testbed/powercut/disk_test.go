package powercut

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mounted(t *testing.T) (*Disk, string) {
	t.Helper()
	d, dir := New(), t.TempDir()
	if err := d.Mount(dir); err != nil {
		t.Skip("SKIPPED: no file system can be mounted here:", err)
	}
	t.Cleanup(func() { require.NoError(t, d.Unmount()) })
	return d, dir
}

func syncFolder(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Sync(), f.Close()))
}

func TestWhatWasNotSyncedIsLost(t *testing.T) {
	t.Parallel()
	d, dir := mounted(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(in("a"), 0o700))
	syncFolder(t, dir)
	f, err := os.Create(in("a/kept"))
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 10_000), 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("synced"), 5000)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	syncFolder(t, in("a"))
	_, err = f.WriteAt([]byte("later!"), 5000)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("beyond"), 20_000)
	require.NoError(t, err)
	require.NoError(t, syscall.Fdatasync(int(f.Fd()))) // these are safe
	_, err = f.WriteAt([]byte("lost"), 5000)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(100))
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(in("a/unnamed"), []byte("x"), 0o600))
	require.NoError(t, os.Rename(in("a/kept"), in("moved")))

	require.NoError(t, d.Cut(nil))
	b, err := os.ReadFile(in("a/kept"))
	require.NoError(t, err)
	require.Len(t, b, 20_006)
	assert.Equal(t, "later!", string(b[5000:5006]))
	assert.Equal(t, "beyond", string(b[20_000:]))
	assert.NoFileExists(t, in("a/unnamed"))
	assert.NoFileExists(t, in("moved"))

	// A rename from one folder into another is one step, whichever of them is synced.
	require.NoError(t, os.Rename(in("a/kept"), in("moved")))
	syncFolder(t, in("a"))
	require.NoError(t, d.Cut(nil))
	assert.NoFileExists(t, in("a/kept"))
	assert.FileExists(t, in("moved"))
	require.NoError(t, os.Remove(in("moved")))
	require.NoError(t, d.Cut(nil))
	assert.FileExists(t, in("moved"), "the removal was not synced")
}

// A cut in the middle of writing keeps some pages and not others.
func TestSomePagesSurvive(t *testing.T) {
	t.Parallel()
	d, dir := mounted(t)
	path := filepath.Join(dir, "f")
	f, err := os.Create(path)
	require.NoError(t, err)
	const pages = 64
	_, err = f.WriteAt(make([]byte, pages*pageSize), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	syncFolder(t, dir)
	for page := range int64(pages) {
		_, err = f.WriteAt([]byte{1}, page*pageSize)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	require.NoError(t, d.Cut(rand.New(rand.NewPCG(1, 2))))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	survived := 0
	for page := range pages {
		survived += int(b[page*pageSize])
	}
	assert.Greater(t, survived, pages/4)
	assert.Less(t, survived, pages*3/4)
}

// Programs that use the disk see a usual file system.
func TestItIsAFileSystem(t *testing.T) {
	t.Parallel()
	_, dir := mounted(t)
	require.NoError(t, os.CopyFS(filepath.Join(dir, "copy"), os.DirFS("."))) // many files
	same, err := os.ReadFile(filepath.Join(dir, "copy/mount.go"))
	require.NoError(t, err)
	want, err := os.ReadFile("mount.go")
	require.NoError(t, err)
	assert.Equal(t, want, same)
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, 1<<20))
	require.NoError(t, os.Remove(filepath.Join(dir, "f")))
	_, err = f.WriteAt([]byte("into an unlinked file"), 9)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, int64(1<<20), info.Size())
	assert.Zero(t, info.Sys().(*syscall.Stat_t).Nlink)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	require.NoError(t, f.Close())
	require.ErrorIs(t, os.Remove(filepath.Join(dir, "copy")), syscall.ENOTEMPTY)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "copy")))
	_, err = os.Stat(filepath.Join(dir, "copy"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
