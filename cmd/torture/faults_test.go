package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

func TestShortWritesAreReadFromATrace(t *testing.T) {
	t.Parallel()
	trace := &tracing{output: filepath.Join(t.TempDir(), "out")}
	require.NoError(t, os.WriteFile(trace.output, []byte(`11 pwrite64(9</d/events/1.seg>, ""..., 5000, 8192) = 5000
11 pwrite64(9</d/events/1.seg>, ""..., 5000, 13192) = 1200
12 write(7</d/events.jsonl>, ""..., 900 <unfinished ...>
11 write(5<socket:[77]>, ""..., 900) = 12
12 <... write resumed>)                  = 300
12 write(7</d/events.jsonl>, ""..., 600) = -1 EFBIG (File too large)
13 pwrite64(9</d/events/1.seg>, ""..., 80, 1) = -1 EIO (Input/output error) (INJECTED)
14 write(7</d/events.jsonl>, ""..., 10 <unfinished ...>
14 <... write resumed>)                  = 10
`), 0o600))
	all, err := trace.shorts()
	require.NoError(t, err)
	assert.Equal(t, []short{{"/d/events/1.seg", 5000, 1200}, {"/d/events.jsonl", 900, 300}}, all)
	n, err := trace.injected()
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

func TestAnExcuseCoversWhatIsMissingAndNothingElse(t *testing.T) {
	t.Parallel()
	const prefix = "event-log-x-"
	id := func(n uint64) string { return workspacesim.EventID(prefix, n) }
	ledgers := []workspacesim.Ledger{{Prefix: prefix, Acknowledged: []workspacesim.Range{{From: 0, To: 3}, {From: 5, To: 8}}}}
	excused := acknowledgedOf([]string{id(7), id(4), id(1), id(7), "other"}, ledgers)
	assert.Equal(t, []string{id(1), id(7)}, excused, "each once, and only what was acknowledged")

	var a arrival
	for _, n := range []uint64{0, 1, 1, 5, 6} {
		a.Add(id(n))
	}
	a.excuse(excused)
	assert.Equal(t, int64(1), a.excused, "event 1 has arrived")
	assert.Equal(t, int64(4), a.Unique)
	assert.Equal(t, int64(1), a.Duplicates)
	assert.Equal(t, int64(1), a.Missing(ledgers), "event 2 has no excuse")
}

func TestARunOfPositionsHasAnEnd(t *testing.T) {
	t.Parallel()
	set := map[store.Pos]bool{}
	require.NoError(t, take(set, damage.Stretch{From: 3, To: 5}))
	require.NoError(t, take(set, damage.Stretch{From: 9, To: 8}))
	assert.Equal(t, map[store.Pos]bool{3: true, 4: true, 5: true}, set)
	require.ErrorContains(t, take(set, damage.Stretch{From: 1, To: 1 << 60}), "never given out")
}

func TestSamplesAreAddedUp(t *testing.T) {
	t.Parallel()
	const metrics = "# HELP looks_total Looks.\nlooks_total{result=\"ok\",of=\"a b\"} 3\nlooks_total{result=\"ok\"} 4\nlooks_total{result=\"error\"} 9\n"
	sum, samples := sumOf(metrics, `looks_total{result="ok"`)
	assert.InDelta(t, 7, sum, 0)
	assert.Equal(t, 2, samples)
}
