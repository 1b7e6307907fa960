package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rotatedRelay is the folder of a stopped relay with a trail under two keys, and its first
// key. older is a copy of its files for public tools from just after the rotation.
func rotatedRelay(t *testing.T) (dir, older, key string) {
	t.Helper()
	dir = t.TempDir()
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
	code, out, errs := command(t, "trail", "rotate-key", "--config", file, "--yes")
	require.Zero(t, code, out+errs)
	older = filepath.Join(t.TempDir(), "older")
	require.NoError(t, os.CopyFS(older, os.DirFS(filepath.Join(cfg.DataDir, "tlog"))))
	return dir, older, publicKey(t, dir)
}

// verified runs trail verify on the folder of a stopped relay in three ways: on its data
// directory with and without --offline, which makes no difference as no relay runs, and on its
// files for public tools as a copy.
func verified(t *testing.T, data, key string) (codes [3]int, texts string) {
	t.Helper()
	for i, args := range [][]string{{"--data-dir", data, "--offline"}, {"--data-dir", data}, {"--dir", filepath.Join(data, "tlog")}} {
		code, out, errs := command(t, append([]string{"trail", "verify", "--key", key}, args...)...)
		codes[i], texts = code, texts+out+errs
	}
	return codes, texts
}

// After a rotation, nobody can delete what came after it, or put older files back, without
// being noticed.
func TestFilesDeletedAfterARotationAreMissed(t *testing.T) {
	t.Parallel()
	dir, older, key := rotatedRelay(t)
	cfg := configOf(dir)
	codes, text := verified(t, cfg.DataDir, key)
	require.Zero(t, codes, "just after the rotation: %s", text)
	appendTo(t, cfg, 38)
	startRelay(t, cfg).stop()
	codes, text = verified(t, cfg.DataDir, key)
	require.Zero(t, codes, "a relay that was stopped: %s", text)
	require.Equal(t, 3, strings.Count(text, "entries 21 to "), text)

	for name, c := range map[string]struct {
		change func(tlog string)
		codes  [3]int
		says   string
	}{
		"the newest generation is deleted": {
			func(tlog string) { require.NoError(t, os.RemoveAll(filepath.Join(tlog, "1"))) },
			[3]int{3, 3, 3},
			"entry 20, the last signed one, names the key " + madeOrigin,
		},
		"older files are put back": { // only the streams know of more
			func(tlog string) {
				require.NoError(t, os.RemoveAll(tlog))
				require.NoError(t, os.CopyFS(tlog, os.DirFS(older)))
			},
			[3]int{3, 3, 0},
			"the trail's log has them, and its files do not",
		},
		"all files are deleted": {
			func(tlog string) { require.NoError(t, os.RemoveAll(tlog)) },
			[3]int{3, 3, 1},
			"the trail's log has them, and its files do not",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.CopyFS(data, os.DirFS(cfg.DataDir)))
			c.change(filepath.Join(data, "tlog"))
			codes, text := verified(t, data, key)
			assert.Equal(t, c.codes, codes, text)
			assert.Contains(t, text, c.says)
		})
	}
}
