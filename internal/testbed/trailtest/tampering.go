package trailtest

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seeds returns the seeds of a test's cases: AUDITRELAY_TAMPER of them, beginning with
// AUDITRELAY_SEED. The defaults are otherwise and 1.
func Seeds(t *testing.T, otherwise uint64) (seeds []uint64) {
	t.Helper()
	first := variable(t, "AUDITRELAY_SEED", 1)
	for i := range variable(t, "AUDITRELAY_TAMPER", otherwise) {
		seeds = append(seeds, first+i)
	}
	return seeds
}

func variable(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

// Tell logs how many cases there were of each kind.
func Tell(t *testing.T, kinds []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	counts := map[string]int{}
	for _, kind := range kinds {
		counts[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-34s %4d cases, all found and rightly named", kind, counts[kind])
	}
}
