package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/deadletters"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A sink refusing everything waits at the budget of its dead letters, and says so.
// Nothing is lost: pushes are taken, and another sink gets all of it. Once the letters
// are gone, the sink goes on with the events waiting in the journal.
func TestASinkWaitsAtTheBudgetOfItsDeadLetters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := testConfig(dir, config.Sink{
		Name: "strict", BatchEvents: 150, File: &config.File{Path: filepath.Join(dir, "strict.jsonl")},
		Redact: &config.Redact{Remove: []string{"/email"}},
	})
	cfg.Journal.DeadLetterBytes = 1 << 20
	r := start(t, cfg)
	const pushes, each = 10, 100
	for n := range pushes {
		var lines []string
		for i := range each {
			lines = append(lines, fmt.Sprintf("line %d is no JSON %s", n*each+i, incompressible(1500)))
		}
		r.pushLines(lines...)
	}
	r.eventually(`auditrelay_sink_delivered_events_total{sink="file"}`, fmt.Sprint(pushes*each))
	r.eventually(`auditrelay_sink_failing{sink="strict"}`, "1")
	code, ready := r.get("/readyz")
	assert.Equal(t, http.StatusOK, code, "pushes are taken")
	assert.Contains(t, ready, "strict waits: its ")
	assert.Contains(t, ready, "letters take all of their budget; replay or discard some")
	assert.Equal(t, "1.048576e+06", r.metric("auditrelay_dead_letters_budget_bytes"))
	waiting.Until(t, func() bool { // it is asked for once a second
		bytes, err := strconv.ParseFloat(r.metric(`auditrelay_dead_letters_bytes{sink="strict"}`), 64)
		return err == nil && bytes >= 1<<20
	})

	client := console.NewClient(cfg.DataDir)
	seen := map[string]int{}
	discard := func() {
		through := uint64(0)
		require.NoError(t, client.Letters(t.Context(), console.ListLetters{Bodies: true}, func(l *console.Letter) error {
			assert.Contains(t, string(l.Body), "is no JSON")
			seen[l.ID]++
			through = l.Sequence
			return nil
		}))
		if through > 0 {
			request := console.DiscardLetters{Filter: deadletters.Filter{Through: through}}
			require.NoError(t, client.DiscardLetters(t.Context(), request, func(*console.Progress) {}))
		}
	}
	waiting.While(t, func() any { return len(seen) }, func() bool { discard(); return len(seen) == pushes*each })
	for id, n := range seen {
		assert.Equal(t, 1, n, id)
	}
	r.eventually(`auditrelay_sink_failing{sink="strict"}`, "0")
	require.NoError(t, r.stop())
}
