package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A stopped relay without files for public tools is verified from its streams.
func TestTrailVerifyReadsAStoppedRelay(t *testing.T) {
	t.Parallel()
	dir := makeTrail(t)
	code, out, errs := command(t, "trail", "verify", "--offline", "--data-dir", dir)
	assert.Equal(t, 3, code, errs)
	assert.Contains(t, out, "integrity: holds")
	assert.Contains(t, out, "NOTHING IS PROVEN")
	_, public, errs := command(t, "trail", "keygen", "--origin", "example.com/trail", "--file", filepath.Join(t.TempDir(), "other.key"))
	require.NotEmpty(t, public, errs)
	code, out, _ = command(t, "trail", "verify", "--offline", "--data-dir", dir, "--key", strings.TrimSpace(public))
	assert.Equal(t, 1, code, "another key of the same name")
	assert.Contains(t, out, "not with the trusted one")

	flipEntry(t, dir, "AUDITRELAY_AUDIT", 4)
	code, out, _ = command(t, "trail", "verify", "--offline", "--data-dir", dir)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "missing: entry 4: the trail's streams")
}

// A stranger with the public key verifies a running relay's trail over HTTP, takes a proof of
// an entry, and verifies that one, and an export.
func TestARunningTrailIsVerifiedAndProven(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	o.start(t)
	site, key, size := "http://"+o.admin+"/tlog/", "", 0
	waiting.Until(t, func() bool {
		key, size = signedTrail(t, o.admin)
		return size > 3
	}, "nothing is signed and served: %s", &o.output)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "auditrelay", append([]string{"trail"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return string(out)
	}
	text := run("verify", "--url", site, "--key", key)
	assert.Contains(t, text, "integrity: holds")
	assert.Contains(t, text, "completeness: holds")
	dir := t.TempDir()
	proofs, export := filepath.Join(dir, "proofs"), filepath.Join(dir, "export")
	assert.Contains(t, run("prove", "0", "2", "--url", site, "--key", key, "--dir", proofs), "2 of 2 proofs")
	assert.Contains(t, run("verify", "--proof", filepath.Join(proofs, "2.tlog-proof"), "--record", filepath.Join(proofs, "2.json"),
		"--policy", filepath.Join(proofs, "trail.policy")), "is entry 2 of the log")
	run("export", "--form", "tlog", "--dir", export, "--config", o.config)
	assert.Contains(t, run("verify", "--dir", export, "--key", key), "integrity: holds")

	record := filepath.Join(proofs, "2.json")
	altered, err := os.ReadFile(record)
	require.NoError(t, err)
	altered[len(altered)/2] ^= 1
	require.NoError(t, os.WriteFile(record, altered, 0o600))
	code, _, errs := command(t, "trail", "verify", "--proof", filepath.Join(proofs, "2.tlog-proof"), "--record", record, "--key", key)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "the record is not entry 2 of the signed tree")
}

// signedTrail asks a relay for its public key, and for the size of the tree that it serves.
func signedTrail(t *testing.T, admin string) (key string, size int) {
	t.Helper()
	response, err := http.Get("http://" + admin + "/status")
	if err != nil {
		return "", 0
	}
	defer func() { _ = response.Body.Close() }()
	var status struct {
		Trail struct {
			PublicKey string `json:"public_key"`
		}
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&status))
	served, err := http.Get("http://" + admin + "/tlog/")
	require.NoError(t, err)
	defer func() { _ = served.Body.Close() }()
	var logs []struct {
		Size int `json:"size"`
	}
	if json.NewDecoder(served.Body).Decode(&logs) != nil || len(logs) == 0 {
		return status.Trail.PublicKey, 0
	}
	return status.Trail.PublicKey, logs[0].Size
}
