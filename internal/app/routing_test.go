package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

func (r *running) pushLines(lines ...string) {
	r.t.Helper()
	var values []string
	for i, line := range lines {
		text, err := json.Marshal(line)
		require.NoError(r.t, err)
		values = append(values, fmt.Sprintf(`["%d",%s]`, time.Now().UnixNano()+int64(i), text))
	}
	body := `{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(r.t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	code, answer := r.do(req)
	require.Equal(r.t, http.StatusNoContent, code, answer)
}

func (r *running) eventually(metric, want string) {
	r.t.Helper()
	waiting.Until(r.t, func() bool { return r.metric(metric) == want }, "%s is %s, not %s", metric, r.metric(metric), want)
}

// bodies are the bodies of the pushed events in a file, in their order.
func bodies(t *testing.T, path string) (all []string) {
	t.Helper()
	for rec, err := range readback.Records(path) {
		require.NoError(t, err)
		if rec.Attributes["source"] != relay.TrailSource {
			all = append(all, string(rec.Body))
		}
	}
	return all
}

// One sink gets a part of the events, redacted; another one all as they came,
// and so do the dead letters. Replays choose and redact again.
func TestRoutedAndRedacted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "routed.jsonl")
	routed := config.Sink{
		Name: "routed", File: &config.File{Path: path},
		Match:  &config.Match{Types: []string{"event_log*"}, CEL: `body == null || has(body.email)`},
		Redact: &config.Redact{Remove: []string{"/email", "/odd/x"}, Missing: "withhold"},
	}
	cfg := testConfig(dir, routed)
	r := start(t, cfg)
	const (
		a = `{"event_id":"a","email":"a@example.com","odd":{"x":2}, "n":1.50}`
		b = `{"event_id":"b"}`
		c = `plain text of c@example.com`
		d = `{"event_id":"d","odd":{"\ud83d":1},"email":"d@example.com"}`

		redacted, redactedD = `{"event_id":"a","odd":{}, "n":1.50}`, `{"event_id":"d","odd":{}}`
	)
	r.pushLines(a, b, c, d)
	r.eventually(`auditrelay_sink_rejected_events_total{sink="routed"}`, "2")
	r.arrived("a", "b", "d")
	waiting.Until(t, func() bool { // b, and all of the trail: another type
		_, own := written(r.path)
		return own > 0 && r.metric(`auditrelay_sink_unmatched_events_total{sink="routed"}`) == strconv.Itoa(1+own)
	})
	assert.Equal(t, []string{redacted}, bodies(t, path))
	assert.Equal(t, []string{a, b, c, d}, bodies(t, r.path))

	client := console.NewClient(cfg.DataDir)
	letters := func() (all []string) {
		require.NoError(t, client.Letters(t.Context(), console.ListLetters{Bodies: true}, func(l *console.Letter) error {
			assert.Contains(t, l.Reason, "its body cannot be redacted, and so is withheld")
			all = append(all, string(l.Body))
			return nil
		}))
		return all
	}
	assert.Equal(t, []string{c, d}, letters(), "dead letters are the events as they came")
	require.NoError(t, client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "routed", Match: `id == "a"`}, func(*console.Progress) {}))
	assert.Equal(t, []string{redacted, redacted}, bodies(t, path))
	require.NoError(t, r.stop())

	cfg.Sinks[1].Redact = &config.Redact{Remove: []string{"/email", "/odd/x"}, Missing: "deliver"}
	r = start(t, cfg)
	require.NoError(t, client.ReplayLetters(t.Context(), console.ReplayLetters{}, func(*console.Progress) {}))
	assert.Equal(t, []string{redacted, redacted, redactedD}, bodies(t, path), "a name that some readers take for x goes too")
	assert.Equal(t, []string{c}, letters(), "what cannot be redacted is still withheld")
	require.NoError(t, r.stop())
}
