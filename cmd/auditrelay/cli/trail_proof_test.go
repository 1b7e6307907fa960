package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// TestMakeAnExportForProof makes the trail that cmd/proof checks, in AUDITRELAY_PROOF_DIR:
// the folder export, and the key in trail.pub.
func TestMakeAnExportForProof(t *testing.T) {
	dir := os.Getenv("AUDITRELAY_PROOF_DIR")
	if dir == "" {
		t.Skip("cmd/proof runs it")
	}
	n, err := strconv.Atoi(os.Getenv("AUDITRELAY_PROOF_ENTRIES"))
	require.NoError(t, err)
	kept := trailtest.Store(t, t.TempDir())
	defer func() { require.NoError(t, kept.Close()) }()
	o := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(t.Context(), kept, o)
	require.NoError(t, err)
	require.NoError(t, trail.Close(t.Context()))
	start := time.Now()
	fillTrail(t, kept, n)
	fmt.Printf("%d entries appended in %v\n", n, time.Since(start).Round(time.Millisecond))
	open := func() {
		trail, err = audit.Open(t.Context(), kept, o)
		require.NoError(t, err)
		_, err = trail.Get(t.Context(), 0) // it waits until the trail was read
		require.NoError(t, err)
	}
	for range 2 { // the first one signs when it closes
		open()
		require.NoError(t, trail.Close(t.Context()))
	}
	open()
	defer func() { require.NoError(t, trail.Close(t.Context())) }()
	start = time.Now()
	made := writeFiles(t, trail, filepath.Join(dir, "export"))
	require.EqualValues(t, n, made.Size)
	fmt.Printf("%d entries exported in %v\n", n, time.Since(start).Round(time.Millisecond))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trail.pub"), []byte(made.PublicKey+"\n"), 0o600))
}
