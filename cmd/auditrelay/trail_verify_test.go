package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
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

	flipRecord(audit.EntriesLog, 4)(t, dir)
	code, out, _ = command(t, "trail", "verify", "--offline", "--data-dir", dir)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "missing: entry 4: the trail's log")
}

// A stranger with the public key verifies a running relay's trail over HTTP, takes a proof of
// an entry, and verifies that one, and an export.
func TestARunningTrailIsVerifiedAndProven(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	o.start(t)
	site, key, size := "http://"+o.admin+"/tlog/", "", 0
	waiting.Until(t, func() bool {
		key, size = signedTrail(t, o)
		return size > 3
	}, "nothing is signed and served: %s", &o.output)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "auditrelay", append([]string{"trail"}, args...)...)
		cmd.Env = append(os.Environ(), o.tlogToken(t))
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
func signedTrail(t *testing.T, o *office) (key string, size int) {
	t.Helper()
	var status struct {
		Trail struct {
			PublicKey string `json:"public_key"`
		}
	}
	if code, text := askPrivate(t, o.admin, o.dataDir(), "/status"); code != http.StatusOK || json.Unmarshal(text, &status) != nil {
		return "", 0
	}
	var logs []struct {
		Size int `json:"size"`
	}
	if _, text := askPrivate(t, o.admin, o.dataDir(), "/tlog/"); json.Unmarshal(text, &logs) != nil || len(logs) == 0 {
		return status.Trail.PublicKey, 0
	}
	return status.Trail.PublicKey, logs[0].Size
}

// tlogToken is the variable with the token of /tlog/.
func (o *office) tlogToken(t *testing.T) string {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(o.dataDir(), "admin.token"))
	require.NoError(t, err)
	return "AUDITRELAY_TLOG_TOKEN=" + strings.TrimSpace(string(token))
}

func (o *office) dataDir() string { return filepath.Join(filepath.Dir(o.config), "data") }

// askPrivate asks a page of the private listener, with its token. The code is 0 as long as
// nobody listens.
func askPrivate(t *testing.T, admin, dataDir, path string) (code int, text []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+path, http.NoBody)
	require.NoError(t, err)
	rig.ShowToken(req, dataDir)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, text
}
