package cli

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Without --policy, trail.policy names the configured witnesses, and the proofs have their
// quorum, or are not written.
func TestAPolicyNamesTheConfiguredWitnesses(t *testing.T) {
	t.Setenv(configVariable, "")
	dir, key := exportedTrail(t, 3)
	secrets, config := make([]string, 2), "data_dir: "+t.TempDir()+"\naudit:\n  quorum: 1\n  witnesses:\n"
	for i := range secrets {
		secret, public, err := note.GenerateKey(rand.Reader, fmt.Sprintf("w%d.example", i))
		require.NoError(t, err)
		public, err = cosign.VKeyToCosignatureV1(public)
		require.NoError(t, err)
		secrets[i] = secret
		config += fmt.Sprintf("    - {url: \"https://w%d.example\", key: %s}\n", i, public)
	}
	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	proofs := t.TempDir()
	prove := []string{"prove", "1", "--export", dir, "--dir", proofs}
	verify := []string{"verify", "--proof", filepath.Join(proofs, "1.tlog-proof"), "--record", filepath.Join(proofs, "1.json"), "--policy", filepath.Join(proofs, "trail.policy")}

	assert.Contains(t, trailCommand(t, ExitFailure, append(prove, "--config", file)...), "prove entry 1: ")
	assert.NoFileExists(t, filepath.Join(proofs, "1.tlog-proof"), "no witness has signed")
	cosigned(t, filepath.Join(dir, "0", proof.CheckpointFile), key, secrets[1])
	assert.Contains(t, trailCommand(t, ExitOK, append(prove, "--config", file)...), "1 of 1 proofs")
	assert.Contains(t, trailCommand(t, ExitOK, verify...), "cosigned by 1 witnesses")
	policy, err := os.ReadFile(filepath.Join(proofs, "trail.policy"))
	require.NoError(t, err)
	assert.Contains(t, string(policy), "log "+key+"\nwitness witness-1 w0.example+")
	assert.Contains(t, string(policy), " https://w1.example\ngroup the-quorum 1 witness-1 witness-2\nquorum the-quorum\n")

	// The environment's configuration may be of another relay.
	t.Setenv(configVariable, file)
	trailCommand(t, ExitOK, prove...)
	policy, err = os.ReadFile(filepath.Join(proofs, "trail.policy"))
	require.NoError(t, err)
	assert.NotContains(t, string(policy), "witness-1")
	assert.Contains(t, string(policy), "quorum none\n")
}

// cosigned adds a witness's signature to a checkpoint.
func cosigned(t *testing.T, file, key, secret string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	log, err := note.NewVerifier(key)
	require.NoError(t, err)
	n, err := note.Open(text, note.VerifierList(log))
	require.NoError(t, err)
	signer, err := cosign.NewSignerForCosignatureV1(secret)
	require.NoError(t, err)
	text, err = note.Sign(n, signer)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
}
