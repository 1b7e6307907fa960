package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// One environment's refused events fill its letters at a sink, and more of them come. The
// sink waits for nobody: another environment's events arrive there, and so does an entry of
// the trail. In the end the environment's own pushes are refused, and nobody else's. Nothing
// is lost, and with the letters gone its pushes are taken.
func TestNoEnvironmentHoldsUpASinkByItsDeadLetters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	strict := config.Sink{
		Name: "strict", BatchEvents: 150, File: &config.File{Path: filepath.Join(dir, "strict.jsonl")},
		Redact: &config.Redact{Remove: []string{"/email"}},
	}
	cfg := withEnvironments(testConfig(dir, strict), "flood", "calm")
	cfg.Journal.DeadLetterBytes, cfg.Journal.MaxBytes, cfg.Ingest.Limits.BodyBytes = 1<<20, 8<<20, 1<<20
	r := start(t, cfg)
	taken, code := 0, http.StatusNoContent
	flood := func() int {
		var lines []string
		for i := range 100 {
			lines = append(lines, fmt.Sprintf("line %d is no JSON %s", taken+i, incompressible(1500)))
		}
		return r.pushTextAs("flood", lines...)
	}
	waiting.Until(t, func() bool {
		if code = flood(); code == http.StatusNoContent {
			taken += 100
		}
		require.Less(t, taken, 50_000, "its letters are bounded")
		return code != http.StatusNoContent
	})
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Equal(t, http.StatusNoContent, r.pushTextAs("calm", `{"event_id":"calm-1","action":"LOGIN"}`))
	entry := r.silenced(cfg.DataDir, "calm")
	waiting.Until(t, func() bool {
		text, err := os.ReadFile(strict.File.Path)
		return err == nil && strings.Contains(string(text), `"calm-1"`) && strings.Contains(string(text), strconv.Quote(entry.ID()))
	}, "the sink goes on")
	assert.Equal(t, "0", r.metric(`auditrelay_sink_failing{sink="strict"}`))
	code, ready := r.get("/readyz")
	assert.Equal(t, http.StatusOK, code, "pushes are taken")
	assert.Contains(t, ready, "the letters of acme/flood at strict take all of their budget")

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
	waiting.While(t, func() any { return len(seen) }, func() bool { discard(); return len(seen) == taken })
	for id, n := range seen {
		assert.Equal(t, 1, n, id)
	}
	waiting.Until(t, func() bool { return flood() == http.StatusNoContent }, "its pushes are taken again")
	require.NoError(t, r.stop())
}

// pushTextAs pushes lines as a user of withEnvironments.
func (r *running) pushTextAs(user string, lines ...string) int {
	r.t.Helper()
	var values []string
	for _, line := range lines {
		values = append(values, fmt.Sprintf(`["%d",%q]`, time.Now().UnixNano(), line))
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push",
		strings.NewReader(`{"streams":[{"stream":{"app":"idp"},"values":[`+strings.Join(values, ",")+`]}]}`))
	require.NoError(r.t, err)
	req.SetBasicAuth(user, "a-password-of-"+user)
	req.Header.Set("Content-Type", "application/json")
	code, _ := r.do(req)
	return code
}
