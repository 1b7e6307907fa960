package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// Old entries are moved out of a running relay; they are verified and proven all the same, also
// after the relay was killed.
func TestOldEntriesAreArchivedByACommand(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	dir := filepath.Dir(o.config)
	archive, bundle := filepath.Join(dir, "old"), "0/tile/entries/000"
	appendTo(t, configOf(dir), 260)
	relay := o.start(t)
	site, key := "http://"+o.admin+"/tlog/", ""
	signed := func(more int) {
		waiting.Until(t, func() bool {
			var size int
			key, size = signedTrail(t, o)
			return size >= more
		}, "not all is signed and served: %s", &o.output)
	}
	signed(260)
	run := func(exit int, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "auditrelay", append([]string{"trail"}, args...)...)
		cmd.Env = append(os.Environ(), o.tlogToken(t))
		out, _ := cmd.CombinedOutput()
		require.Equal(t, exit, cmd.ProcessState.ExitCode(), "%v: %s", args, out)
		return string(out)
	}
	move := []string{"archive", "--config", o.config, "--before", "0s", "--to", archive}
	assert.Contains(t, run(0, append(move, "--dry-run")...), "entries 0 to 255, 1 files with ")
	assert.Contains(t, run(1, move...), "without a terminal")
	require.NoFileExists(t, filepath.Join(archive, bundle))
	assert.Contains(t, run(1, "archive", "--config", o.config, "--before", "0s", "--yes", "--to", filepath.Join(dir, "data/old")), "within each other")
	assert.Contains(t, run(0, append(move, "--yes")...), "are moved to "+archive)
	require.FileExists(t, filepath.Join(archive, bundle))
	require.NoFileExists(t, filepath.Join(dir, "data/tlog", bundle))
	assert.Contains(t, o.told(t, `"trail.archived"`, archive), `"person"`)

	signed(entriesOf(t, o)) // the entry about it too
	const hashOnly = "256 entries are archived, and were checked by their hashes only: 0 to 255"
	assert.Contains(t, run(0, "verify", "--url", site, "--key", key), hashOnly)
	assert.Contains(t, run(0, "verify", "--dir", archive, "--key", key), "integrity: holds")
	assert.Contains(t, run(0, "verify", "--dir", filepath.Join(dir, "data/tlog"), "--key", key), hashOnly)
	run(0, "verify", "--url", site, "--key", key, "--checkpoint", filepath.Join(archive, "0/checkpoint"))
	export := []string{"export", "--form", "tlog", "--dir", filepath.Join(dir, "export"), "--config", o.config}
	assert.Contains(t, run(1, export...), "copy the archive to "+filepath.Join(dir, "export"))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "export")))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "export"), os.DirFS(archive)))
	run(0, export...)
	assert.NotContains(t, run(0, "verify", "--dir", filepath.Join(dir, "export"), "--key", key), "archived")
	proofs := filepath.Join(dir, "proofs")
	assert.Contains(t, run(0, "prove", "3", "--config", o.config, "--key", key, "--dir", proofs), "by its hash only")
	require.NoFileExists(t, filepath.Join(proofs, "3.json"))
	run(0, "export", "--form", "tlog", "--dir", archive, "--config", o.config) // with the entry about it
	assert.NotContains(t, run(0, "verify", "--dir", archive, "--key", key), "archived")
	moved, lost := filepath.Join(archive, bundle), filepath.Join(dir, "lost")
	require.NoError(t, os.Rename(moved, lost))
	assert.Contains(t, run(1, "verify", "--dir", archive, "--key", key), "missing: entries 0 to 255")
	mark, err := os.ReadFile(filepath.Join(dir, "data/tlog/0/archived"))
	require.NoError(t, err)
	stray := filepath.Join(archive, "0/archived") // as whoever copies the live files over the archive leaves it
	require.NoError(t, os.WriteFile(stray, mark, 0o600))
	assert.Contains(t, run(1, "verify", "--dir", archive, "--key", key), "missing: entries 0 to 255")
	assert.Contains(t, run(1, "verify", "--dir", filepath.Join(archive, "0"), "--key", key), "missing: entries 0 to 255")
	require.NoError(t, os.Remove(stray))
	require.NoError(t, os.Rename(lost, moved))
	run(0, "prove", "3", "--export", archive, "--key", key, "--dir", proofs)
	run(0, "verify", "--proof", filepath.Join(proofs, "3.tlog-proof"), "--record", filepath.Join(proofs, "3.json"), "--key", key)
	assert.Contains(t, run(0, "show", "3", "--config", o.config), `"value": 3`, "the relay has it from its stream")

	require.NoError(t, relay.Process.Kill())
	_ = relay.Wait()
	code, out, errs := command(t, "trail", "verify", "--offline", "--data-dir", filepath.Join(dir, "data"), "--key", key)
	assert.NotEqual(t, 1, code, "%s %s", out, errs)
	assert.Contains(t, out, hashOnly)
	o.start(t)
	assert.Contains(t, run(0, append(move, "--yes")...), "nothing to move")
	signed(entriesOf(t, o))
	assert.Contains(t, run(0, "verify", "--url", site, "--key", key), hashOnly)
	assert.Equal(t, 1, strings.Count(run(0, "list", "--config", o.config, "--type", "trail.archived"), "moved to an archive"))
}

// entriesOf is the number of entries in the trail, signed or not.
func entriesOf(t *testing.T, o *office) int {
	t.Helper()
	_, text := askPrivate(t, o.admin, o.dataDir(), "/status")
	var status struct {
		Trail struct {
			Entries int `json:"entries"`
		} `json:"trail"`
	}
	require.NoError(t, json.Unmarshal(text, &status))
	require.Positive(t, status.Trail.Entries)
	return status.Trail.Entries
}
