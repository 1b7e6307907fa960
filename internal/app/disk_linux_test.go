package app

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// A relay starts on a full disk, with a sink that it never had, too; it says so, and takes pushes while the
// room lasts that its journal has reserved.
func TestARelayWithANewSinkStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		t.Skipf("SKIPPED: a small disk wants the right to mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	cfg := testConfig(dir)
	cfg.Sinks[0].File.Path = filepath.Join(elsewhere, "events.jsonl")
	cfg.Journal.MaxBytes = 32 << 20
	r := start(t, cfg)
	r.awaitReady("disk: 9") // MiB
	require.NoError(t, r.stop())

	ballast := fill(t, dir)
	second := config.Sink{Name: "second", File: &config.File{Path: filepath.Join(elsewhere, "second.jsonl")}}
	cfg.Sinks = append(cfg.Sinks, second)
	cfg.SetDefaults()
	r = startWith(t, cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	code, body := r.push("a")
	assert.Equal(t, http.StatusNoContent, code, body)
	r.path = second.File.Path
	r.arrived("a")
	r.awaitReady("disk: warning: the disk of " + cfg.DataDir + " has ")
	require.NoError(t, os.Remove(ballast))
	r.awaitReady("disk: 9")
	require.NoError(t, r.stop())
}

// fill writes into a file until the disk is full.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		err = nil
	}
	require.NoError(t, f.Close())
	return f.Name()
}
