package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// makeTrail writes a journal with a trail of ten signed entries.
func makeTrail(t *testing.T) string {
	t.Helper()
	dir := makeJournal(t)
	cfg := &config.Config{DataDir: dir}
	cfg.SetDefaults()
	files, err := app.OpenStore(t.Context(), cfg, app.StoreOptions{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	trail, err := audit.Open(t.Context(), files, audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: cfg.Audit.KeyFile}})
	require.NoError(t, err)
	for range 10 {
		_, err := trail.Append(t.Context(), audit.Entry{Type: "t", Project: "p", Subject: "s", Time: time.Now(), After: json.RawMessage(`1`)})
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	require.NoError(t, files.Close())
	return dir
}

// flipRecord changes a bit of a record of a log.
func flipRecord(log string, n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		_, err := damage.Of(dir).FlipRecord(log, n)
		require.NoError(t, err)
	}
}

// Damage to the trail, its checkpoints or its key: verify names it, repair mends it
// after a question, and then verify has nothing open.
func TestJournalCommandsCoverTheTrail(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"entry":      {flipRecord(audit.EntriesLog, 4), "missing: entry 4"},
		"checkpoint": {flipRecord(audit.CheckpointsLog, 0), "checkpoint 1: it is missing"},
		"key":        {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "audit.key"))) }, "the signing key is gone"},
		"log": {func(t *testing.T, dir string) {
			require.NoError(t, damage.Of(dir).LoseFolder(audit.EntriesLog))
		}, "missing: entries 0 to 9"},
		"checkpoint next to the key": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "audit.key.checkpoint"), 40))
		}, "the checkpoint next to the key: check signature"},
		"no checkpoint next to the key": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "audit.key.checkpoint")))
		}, "the checkpoint next to the key (audit.key.checkpoint) is missing, though the key has signed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := makeTrail(t)
			code, out, errs := command(t, "journal", "verify", "--data-dir", dir)
			require.Zero(t, code, out+errs)
			tc.spoil(t, dir)
			code, out, _ = command(t, "journal", "verify", "--data-dir", dir)
			assert.Equal(t, 1, code, out)
			assert.Contains(t, out, tc.want)
			code, out, _ = command(t, "journal", "repair", "--data-dir", dir, "--dry-run")
			assert.Zero(t, code)
			assert.Contains(t, out, "nothing was changed")
			code, _, errs = command(t, "journal", "repair", "--data-dir", dir)
			assert.Equal(t, 1, code, "no answer is a no")
			assert.Contains(t, errs, "Take a copy of "+dir)
			code, out, errs = command(t, "journal", "repair", "--data-dir", dir, "--yes")
			require.Zero(t, code, out+errs)
			code, out, errs = command(t, "journal", "verify", "--data-dir", dir)
			assert.Zero(t, code, out+errs)
		})
	}
}

// keygen makes a key once; rotate-key has it sign for the next, and the trail stays whole.
func TestKeygenAndRotateKey(t *testing.T) {
	t.Parallel()
	dir := makeTrail(t)
	key := filepath.Join(t.TempDir(), "audit.key")
	code, public, errs := command(t, "trail", "keygen", "--origin", "example.com/made", "--file", key)
	require.Zero(t, code, errs)
	require.Regexp(t, `^example\.com/made\+[0-9a-f]{8}\+\S{44}\n$`, public)
	info, err := os.Stat(key)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(key)
	require.NoError(t, err)
	code, _, errs = command(t, "trail", "keygen", "--origin", "example.com/made", "--file", key)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "exists")
	again, err := os.ReadFile(key)
	require.NoError(t, err)
	require.Equal(t, text, again)
	code, _, _ = command(t, "trail", "keygen", "--origin", "example.com/made")
	require.Equal(t, cli.ExitUsage, code)

	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data_dir: "+dir+`
environments:
  - {project: my-project, environment: production, credentials: [{username: relay, password: correct-horse-battery}]}
sinks:
  - {name: archive, file: {path: `+filepath.Join(t.TempDir(), "out.jsonl")+`}}
`), 0o600))
	code, _, _ = command(t, "trail", "rotate-key", "--config", file)
	require.Equal(t, 1, code, "no answer is a no")
	code, first, errs := command(t, "trail", "rotate-key", "--config", file, "--yes")
	require.Zero(t, code, errs)
	require.Regexp(t, `signed with example\.com/trail/from-11\+`, first)
	code, second, errs := command(t, "trail", "rotate-key", "--config", file, "--yes")
	require.Zero(t, code, errs)
	require.Regexp(t, `signed with example\.com/trail/from-13\+`, second)
	code, out, errs := command(t, "journal", "verify", "--config", file)
	require.Zero(t, code, out+errs)
	code, out, errs = command(t, "trail", "rotate-key", "--config", file, "--yes", "--public", "nonsense")
	require.Equal(t, 1, code, out)
	require.Contains(t, errs, "NAME+HASH+KEY")
}
