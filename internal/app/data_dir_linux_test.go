package app

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatKeepsAUserFromTheDataDirectoryIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, closed := filepath.Join(dir, "file"), filepath.Join(dir, "closed")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(closed, 0o500))
	require.NoError(t, makeDataDir(filepath.Join(dir, "a", "b")))
	for _, wrong := range []string{file, filepath.Join(file, "below")} {
		require.ErrorContains(t, makeDataDir(wrong), "; it, or what it is in, is a file: set another data_dir")
	}
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // nobody has to come through
	refused := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			assert.NoError(t, syscall.Setfsuid(65534), "nobody")
		}
		refused <- makeDataDir(closed)
		refused <- makeDataDir(filepath.Join(closed, "below"))
	}()
	for range 2 {
		require.ErrorContains(t, <-refused, "permission denied; run the relay as the user whom the folder belongs to")
	}
}
