package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

// exportedTrail is an export of a trail with n entries, and its public key.
func exportedTrail(t *testing.T, n int) (dir, key string) {
	t.Helper()
	kept := trailtest.Store(t, t.TempDir())
	defer func() { require.NoError(t, kept.Close()) }()
	o := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(t.TempDir(), "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(t.Context(), kept, o)
	require.NoError(t, err)
	for i := range n {
		e := scaleEntry(i)
		_, err := trail.Append(t.Context(), e)
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	trail, err = audit.Open(t.Context(), kept, o) // Close has signed
	require.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "export")
	writeFiles(t, trail, dir)
	key = trail.PublicKey()
	require.NoError(t, trail.Close(t.Context()))
	return dir, key
}

// writeFiles writes the files of a trail, as a relay does, and gives its only generation.
func writeFiles(t *testing.T, trail *audit.Trail, dir string) audit.Generation {
	t.Helper()
	require.NoError(t, tiles.NewKeeper(tiles.Open(dir), trail, trail.Generations, nil).Run(t.Context()))
	generations := trail.Generations()
	require.Len(t, generations, 1)
	return generations[0]
}

// trailCommand runs a command, and returns its output.
func trailCommand(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.Equal(t, code, Program{}.Execute(t.Context(), append([]string{"trail"}, args...), &out, &out), "%v: %s", args, &out)
	return out.String()
}

func TestAnExportIsVerifiedAndProven(t *testing.T) {
	t.Setenv(configVariable, "")
	dir, key := exportedTrail(t, 12)
	keyFile := filepath.Join(t.TempDir(), "trail.pub")
	require.NoError(t, os.WriteFile(keyFile, []byte(key+"\n"), 0o600))

	text := trailCommand(t, ExitOK, "verify", "--dir", dir, "--key", keyFile)
	assert.Contains(t, text, "log example.com/trail: entries 0 to 11")
	assert.Contains(t, text, "integrity: holds")
	assert.Contains(t, text, "completeness: holds")
	assert.Contains(t, trailCommand(t, ExitNotShown, "verify", "--dir", dir), "NOTHING IS PROVEN")
	assert.Contains(t, trailCommand(t, ExitUsage, "verify", "--key", key), "name the trail")
	assert.Contains(t, trailCommand(t, ExitUsage, "verify", "--dir", dir, "--url", "x"), "none of the others can be")
	assert.Contains(t, trailCommand(t, ExitOK, "verify", "--dir", dir, "--key", key, "--output", "json"), `"holds": true`)

	proofs := filepath.Join(t.TempDir(), "proofs")
	assert.Contains(t, trailCommand(t, ExitOK, "prove", "0", "7", "11", "--export", dir, "--dir", proofs, "--key", key), "3 of 3 proofs")
	one := func(record, proof string, code int) string {
		return trailCommand(t, code, "verify", "--proof", filepath.Join(proofs, proof), "--record", filepath.Join(proofs, record),
			"--policy", filepath.Join(proofs, "trail.policy"))
	}
	assert.Contains(t, one("7.json", "7.tlog-proof", ExitOK), "is entry 7 of the log example.com/trail")
	assert.Contains(t, one("0.json", "7.tlog-proof", ExitFailure), "the record is not entry 7 of the signed tree")
	assert.Contains(t, trailCommand(t, ExitFailure, "prove", "7", "12", "--export", dir, "--dir", proofs), "entries up to 11 are covered")

	bundle := filepath.Join(dir, "0", "tile", "entries", "000.p", "12")
	data, err := os.ReadFile(bundle)
	require.NoError(t, err)
	data[20] ^= 1
	require.NoError(t, os.WriteFile(bundle, data, 0o600))
	text = trailCommand(t, ExitFailure, "verify", "--dir", dir, "--key", key)
	assert.Contains(t, text, "integrity: BROKEN: 1 findings")
	assert.Contains(t, text, "altered: entry 0: tile/entries/000.p/12")
	assert.Contains(t, trailCommand(t, ExitFailure, "prove", "0", "--export", dir, "--dir", proofs), "names the damage")
}

// A mistyped --checkpoint is the operator's error, and no second history of the trail.
func TestAFileThatIsNoCheckpointAccusesNobody(t *testing.T) {
	t.Setenv(configVariable, "")
	dir, key := exportedTrail(t, 3)
	verify := []string{"verify", "--dir", dir, "--key", key, "--checkpoint"}
	trailCommand(t, ExitOK, append(verify, filepath.Join(dir, "0", proof.CheckpointFile))...)
	history := filepath.Join(dir, "0", proof.HistoryFile)
	said := trailCommand(t, ExitFailure, append(verify, history)...)
	assert.Contains(t, said, "read the known checkpoint: "+history+": parse checkpoint: it has no signature")
	assert.NotContains(t, said, "history: ")
}
