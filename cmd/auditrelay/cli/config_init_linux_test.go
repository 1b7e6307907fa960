package cli

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// A budget that the disk can never hold is asked for, so that what is written passes.
func TestASmallDiskIsAskedAbout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("SKIPPED: a small disk wants the right to mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	i, out, err := asked(t, filepath.Join(dir, "data"), "500GiB", "1MiB", "20MiB", "http://127.0.0.1:8099", "key-1", "", "shop", "live", "", "", "-", "-")
	require.NoError(t, err, out)
	assert.Contains(t, out, "is more than the whole disk")
	cfg, _, err := config.Kinds{}.CheckText(i.file, i.draft.text(), orSetLater)
	require.NoError(t, err, string(i.draft.text()))
	assert.Equal(t, config.Size(20<<20), cfg.Journal.MaxBytes)
}
