package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/ocsftest"
)

// A replay writes the same object once more, and a dead letter is the event as it came.
func TestReplaysAndDeadLettersOfOCSF(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "siem.jsonl")
	cfg := testConfig(dir, config.Sink{
		Name: "siem", Format: config.FormatOCSF, File: &config.File{Path: path},
		Match: &config.Match{Types: []string{"event_log*"}}, Redact: &config.Redact{Remove: []string{"/email"}},
	})
	r := start(t, cfg)
	r.pushLines(`{"event_id":"a","email":"a@example.com"}`, "a text of c@example.com")
	r.eventually(`auditrelay_sink_rejected_events_total{sink="siem"}`, "1")
	client := console.NewClient(cfg.DataDir)
	require.NoError(t, client.Letters(t.Context(), console.ListLetters{Bodies: true}, func(l *console.Letter) error {
		assert.Equal(t, "a text of c@example.com", string(l.Body))
		return nil
	}))
	require.NoError(t, client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "siem", Match: `id == "a"`}, func(*console.Progress) {}))
	require.NoError(t, r.stop())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 2)
	assert.Equal(t, lines[0], lines[1])
	require.NoError(t, ocsftest.Validate([]byte(lines[0])))
	assert.Contains(t, lines[0], `"raw_data":"{\"event_id\":\"a\"}"`)
}
