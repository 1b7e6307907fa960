package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A running relay replaces its key at the command, twice in a row, and goes on. Whoever trusts
// the first key finds everything whole, and in a sink's copy too.
func TestARunningRelayRotatesItsKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := configOf(dir)
	require.NoError(t, os.MkdirAll(cfg.DataDir, 0o700))
	appendTo(t, cfg, 20)
	file := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `data_dir: %s
audit: {origin: %s}
environments:
  - {project: acme, environment: live, credentials: [{username: u, password: a-password-of-some-length}]}
sinks:
  - {name: file, file: {path: %s}}
`, cfg.DataDir, madeOrigin, cfg.Sinks[0].File.Path), 0o600))
	r := startRelay(t, cfg)
	r.push("before")
	for i := range 2 {
		code, out, errs := command(t, "trail", "rotate-key", "--config", file, "--yes")
		require.Zero(t, code, out+errs)
		require.Contains(t, out, "checkpoints are signed with "+madeOrigin+"/from-")
		r.push(fmt.Sprint("after-", i))
	}
	code, out, errs := command(t, "trail", "rotate-key", "--config", file, "--yes", "--public", "nonsense")
	require.Equal(t, 1, code, out)
	require.Contains(t, errs, "NAME+HASH+KEY")
	r.stop()
	codes, text := verified(t, cfg.DataDir, publicKey(t, dir))
	require.Zero(t, codes, text)
	logs, err := os.ReadDir(filepath.Join(cfg.DataDir, "tlog"))
	require.NoError(t, err)
	require.Len(t, logs, 3, "each key has a log of its own")
	startRelay(t, cfg).stop()
	codes, text = verified(t, cfg.DataDir, publicKey(t, dir))
	require.Zero(t, codes, "after another start: %s", text)
	_, out, errs = command(t, "trail", "verify", "--key", publicKey(t, dir), "--from-events", cfg.Sinks[0].File.Path)
	require.Contains(t, out+errs, "integrity: holds")

	// The trail says who replaced its key, on a running relay and on a stopped one.
	code, out, errs = command(t, "trail", "rotate-key", "--config", file, "--yes")
	require.Zero(t, code, out+errs)
	me, err := user.Current()
	require.NoError(t, err)
	_, out, errs = command(t, "trail", "list", "--offline", "--config", file, "--output", "csv", "--actor", me.Username)
	assert.Equal(t, 3, strings.Count(out, "names its successor,"+me.Username+"@"), out+errs)
}
