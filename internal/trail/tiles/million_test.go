package tiles

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAMillionEntriesAreWritten prints the rate of building a log, and the cost of one
// more entry. Set AUDITRELAY_MILLION=1; it takes minutes.
func TestAMillionEntriesAreWritten(t *testing.T) {
	if os.Getenv("AUDITRELAY_MILLION") == "" {
		t.Skip("SKIPPED: with AUDITRELAY_MILLION=1 a log of a million entries is written, which takes minutes")
	}
	const n = 1_000_000
	h := newHouse(t, n)
	start := time.Now()
	h.run()
	took := time.Since(start)
	t.Logf("%d entries written in %v: %.0f a second", n, took.Round(time.Millisecond), n/took.Seconds())
	start = time.Now()
	h.requireWhole(0, n)
	t.Logf("read back in %v", time.Since(start).Round(time.Millisecond))
	h.add(entry(n))
	start = time.Now()
	h.run()
	t.Logf("one more entry written in %v, by a keeper that has just begun", time.Since(start).Round(10*time.Microsecond))
	start = time.Now()
	_, err := h.store.Export(t.Context(), filepath.Join(t.TempDir(), "export"), nil)
	require.NoError(t, err)
	t.Logf("exported and read back in %v", time.Since(start).Round(time.Millisecond))
}
