package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAFolderIsLockedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, lockFile), []byte("process 1 (of long ago, with a long name) on some host"), 0o600))
	held, err := Lock(dir)
	require.NoError(t, err)
	_, err = Lock(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Contains(t, err.Error(), fmt.Sprintf("%s is in use by process %d (durable.test) on ", dir, os.Getpid()))
	assert.NotContains(t, err.Error(), "long ago")
	assert.ErrorContains(t, err, "stop it first, or choose another data directory")
	require.NoError(t, os.Truncate(filepath.Join(dir, lockFile), 0))
	_, err = Lock(dir)
	require.ErrorContains(t, err, "is in use by another process: stop it first")
	require.NoError(t, os.Remove(filepath.Join(dir, lockFile)), "as an old one")
	_, err = Lock(dir)
	require.ErrorAs(t, err, &locked)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, lockFile, "in its place"), 0o700))
	_, err = Lock(dir)
	require.ErrorAs(t, err, &locked)
	require.NoError(t, held.Close())
	held, err = Lock(dir)
	require.NoError(t, err)
	require.NoError(t, held.Close())

	_, err = Lock(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorAs(t, err, &locked)
}

// NFS refuses an exclusive lock of what is not open for writing, as a folder never is.
func TestWhereFoldersCannotBeLockedAFileIs(t *testing.T) {
	defer func(was func(*os.File) error) { tryLock = was }(tryLock)
	usual := tryLock
	tryLock = func(f *os.File) error {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return unix.EBADF
		}
		return usual(f)
	}
	dir := t.TempDir()
	held, err := Lock(dir)
	require.NoError(t, err)
	_, err = Lock(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Contains(t, err.Error(), fmt.Sprintf("in use by process %d", os.Getpid()))
	require.NoError(t, held.Close())
	held, err = Lock(dir)
	require.NoError(t, err)
	require.NoError(t, held.Close())
}

// Who only asks neither locks the folder nor writes to it.
func TestALockIsSeenFromOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.False(t, IsLocked(filepath.Join(dir, "missing")))
	require.False(t, IsLocked(dir))
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, found)
	lock, err := Lock(dir)
	require.NoError(t, err)
	require.True(t, IsLocked(dir))
	require.NoError(t, lock.Close())
	require.False(t, IsLocked(dir))
}
