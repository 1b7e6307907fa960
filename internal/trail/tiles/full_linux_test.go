package tiles

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An archive on a full disk moves nothing; with room, the next run ends the work.
func TestAFullArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("SKIPPED: a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	h := archivedHouse(t)
	log := h.store.Log(0)
	before := files(t, log.dir)
	a, entered := h.archiver(dir, 1024)
	_, err := a.Run(t.Context())
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Empty(t, *entered)
	require.Equal(t, before, files(t, log.dir))
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"))
	_, err = a.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, *entered, 1)
	require.NotContains(t, files(t, log.dir), "tile/entries/000")
	require.NoError(t, log.Check(t.Context(), h.key(0), 0))
}
