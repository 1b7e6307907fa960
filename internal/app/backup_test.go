package app

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// grow adds entries to the trail of a stopped relay.
func grow(t *testing.T, cfg *config.Config, n int) (newest string) {
	t.Helper()
	files, err := OpenStore(t.Context(), cfg, StoreOptions{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	trail, err := audit.Open(t.Context(), files, TrailOptions(cfg))
	require.NoError(t, err)
	for range n {
		_, err := trail.Append(t.Context(), audit.Entry{
			Type: "settings.changed", Project: "acme", Environment: "live", Subject: "rbac_policy", Time: time.Now(), After: json.RawMessage(`{}`),
		})
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	require.NoError(t, files.Close())
	pin, err := os.ReadFile(cfg.Audit.CheckpointFile)
	require.NoError(t, err)
	return string(pin)
}

// restore puts a backup into an empty directory, as deploy/backup.md says.
func restore(t *testing.T, cfg *config.Config, backup string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(cfg.DataDir))
	require.NoError(t, os.CopyFS(cfg.DataDir, os.DirFS(backup)))
}

// deploy/backup.md, step by step: key and checkpoint stand outside of data_dir; data_dir is copied
// while the relay is stopped, and put back into an empty directory.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	prepared := func(t *testing.T) (cfg *config.Config, backup string) {
		t.Helper()
		cfg = made.copied(t)
		outside := t.TempDir()
		for field, name := range map[*string]string{&cfg.Audit.KeyFile: "audit.key", &cfg.Audit.CheckpointFile: "audit.key.checkpoint"} {
			*field = filepath.Join(outside, name)
			require.NoError(t, os.Rename(filepath.Join(cfg.DataDir, name), *field))
		}
		cfg.SetDefaults()
		backup = filepath.Join(t.TempDir(), "backup")
		require.NoError(t, os.CopyFS(backup, os.DirFS(cfg.DataDir)))
		return cfg, backup
	}

	t.Run("the newest backup", func(t *testing.T) {
		t.Parallel()
		cfg, backup := prepared(t)
		before := len(namings(t, cfg.Sinks[0].File.Path))
		restore(t, cfg, backup)
		assertRunsAndNames(t, cfg, made.issued, false)
		assert.Len(t, namings(t, cfg.Sinks[0].File.Path), before, "a sound backup is named")
	})

	t.Run("an older backup", func(t *testing.T) {
		t.Parallel()
		cfg, backup := prepared(t)
		grow(t, cfg, 5)
		restore(t, cfg, backup)
		assertRunsAndNames(t, cfg, made.issued, true)
		all := strings.Join(namings(t, cfg.Sinks[0].File.Path), "\n")
		assert.Contains(t, all, "truncated", "the lost entries are named")
	})

	// The machine is lost with its checkpoint file: nothing here knows better than the
	// backup. Whoever keeps checkpoints elsewhere does: its newest one is of more entries.
	t.Run("an older backup, and no newer checkpoint", func(t *testing.T) {
		t.Parallel()
		cfg, backup := prepared(t)
		oldPin, err := os.ReadFile(cfg.Audit.CheckpointFile)
		require.NoError(t, err)
		elsewhere := grow(t, cfg, 5)
		restore(t, cfg, backup)
		require.NoError(t, os.WriteFile(cfg.Audit.CheckpointFile, oldPin, 0o600))
		here := grow(t, cfg, 0)
		assert.Greater(t, sizeOf(t, elsewhere), sizeOf(t, here), "the copy elsewhere convicts the restored trail")
		require.NoError(t, os.Remove(cfg.Audit.CheckpointFile))
		grow(t, cfg, 0) // without any, the start says that it may be older
		assertRunsAndNames(t, cfg, made.issued, true)
		assert.Contains(t, strings.Join(namings(t, cfg.Sinks[0].File.Path), "\n"), "pin")
	})
}

// sizeOf is the size that a checkpoint states.
func sizeOf(t *testing.T, note string) (size int) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(strings.Split(note, "\n")[1]), &size))
	return size
}
