package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// A witness is killed without warning while it signs. After each start it knows every size
// with its signature, and no two trees of one size get one.
func TestAKilledWitnessForgetsNothing(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 2000, "entry")
	dir := filepath.Join(t.TempDir(), "w")
	out, err := exec.Command("auditrelay", "witness", "init", "--data-dir", dir, "--name", "witness.example.com/w").CombinedOutput()
	require.NoError(t, err, string(out))
	addresses, err := rig.FreeAddresses(t.Context(), 2)
	require.NoError(t, err)
	signed := int64(0) // the largest size with a signature
	for round := range 4 {
		cmd := exec.Command("auditrelay", "witness", "--data-dir", dir, "--listen", addresses[0], "--admin-listen", addresses[1], "--log", l.Public)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		known := int64(0)
		waiting.Until(t, func() bool {
			status, body := add(t, addresses[0], witness.Request{Checkpoint: l.At(1)})
			if status == http.StatusConflict {
				known, err = proof.ParseDecimal(strings.TrimSpace(body))
				require.NoError(t, err)
			}
			return status == http.StatusConflict || status == http.StatusOK
		}, "the witness does not answer")
		require.GreaterOrEqual(t, known, signed, "it forgot a size that it had signed")
		if known > 0 {
			status, body := add(t, addresses[0], witness.Request{Old: known, Checkpoint: l.Fork(known-1).Grow(1, "another").At(known)})
			assert.Equal(t, http.StatusUnprocessableEntity, status, body)
		}
		killed := make(chan error, 1)
		for n := max(known, 1); n < 1999; n++ {
			if n == max(known, 1)+int64(10*(round+1)) {
				go func() { killed <- errors.Join(cmd.Process.Kill(), ignore(cmd.Wait())) }()
			}
			status, body := add(t, addresses[0], witness.Request{Old: n, Proof: l.Prove(n, n+1), Checkpoint: l.At(n + 1)})
			if status == 0 {
				break
			}
			require.Equal(t, http.StatusOK, status, body)
			signed = n + 1
		}
		require.NoError(t, <-killed)
	}
	require.Greater(t, signed, int64(40))
}

// ignore takes the error of a killed process for none.
func ignore(error) error { return nil }

// add posts a request; a status of 0 says that no answer came.
func add(t *testing.T, address string, r witness.Request) (status int, body string) {
	t.Helper()
	response, err := http.Post(fmt.Sprintf("http://%s%s", address, witness.Path), "", bytes.NewReader(r.Marshal()))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
