package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A relay that is stopped hands its last entry over, with a checkpoint that covers it. So a copy
// at a sink is proven whole; one forged attribute in it is found.
func TestACopyAtASinkIsProvenToTheLastEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := configOf(dir)
	for _, id := range []string{"first", "second"} {
		relay := startRelay(t, cfg)
		relay.push(id)
		relay.stop()
		key, copied := publicKey(t, dir), cfg.Sinks[0].File.Path
		code, out, errs := command(t, "trail", "verify", "--from-events", copied, "--key", key)
		require.Zero(t, code, "%s%s", out, errs)
		_, files, errs := command(t, "trail", "verify", "--dir", filepath.Join(cfg.DataDir, "tlog"), "--key", key)
		require.NotEmpty(t, files, errs)
		line := func(text string) string { return string(bytes.SplitN([]byte(text), []byte(", signed at"), 2)[0]) }
		assert.Equal(t, line(files), line(out), "the same entries, under the same root")

		text, err := os.ReadFile(copied)
		require.NoError(t, err)
		for _, c := range [][2]string{
			{`"type":"relay.stopped"`, `"type":"relay.started"`},
			{`"source":"/trail"`, `"source":"/projects/auditrelay"`},
			{`@0","source"`, `@1","source"`},
		} {
			forged := filepath.Join(t.TempDir(), "forged.jsonl")
			require.Contains(t, string(text), c[0])
			require.NoError(t, os.WriteFile(forged, bytes.Replace(text, []byte(c[0]), []byte(c[1]), 1), 0o600))
			code, out, _ := command(t, "trail", "verify", "--from-events", forged, "--key", key)
			assert.Equal(t, 1, code, "%s: %s", c[1], out)
		}
	}
}
