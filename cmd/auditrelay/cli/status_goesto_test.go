package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// GOES TO names the host or the site of the API's last answer, as `streaming status` does.
func TestTheScreenSaysWhereEventsGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ environment, cell, note string }{
		"this relay":     {`"destination":"relay","declared":{"destination_type":"GRAFANA_LOKI","destination":"relay.example.com","at":"2026-03-04T10:29:40Z"}`, "this relay", ""},
		"another host":   {`"destination":"grafana_loki","declared":{"destination_type":"GRAFANA_LOKI","destination":"loki.example.com","at":"2026-03-04T10:29:40Z"}`, "loki.example.com", "its events go to loki.example.com, not to this relay"},
		"a site":         {`"destination":"datadog","declared":{"destination_type":"DATADOG","destination":"US","at":"2026-03-04T10:29:40Z"}`, "Datadog US", "its events go to Datadog US, not to this relay"},
		"not configured": {`"destination":"none","declared":{"destination_type":"GRAFANA_LOKI","destination":"loki.example.com","at":"2026-03-04T10:29:40Z"}`, "loki.example.com", "its events go to loki.example.com"},
		"it pushes here": {`"destination":"grafana_loki","observed":{"events_per_second":2},"declared":{"destination_type":"GRAFANA_LOKI","destination":"relay.example.com","at":"2026-03-04T10:29:40Z"}`, "this relay", ""},
		"nowhere":        {`"destination":"none","declared":{"at":"2026-03-04T10:29:40Z"}`, "nowhere", "its events go nowhere"},
		"not asked yet":  {`"destination":"datadog","declared":{}`, "-", ""},
		"redirected":     {`"destination":"relay","declared":{"destination_type":"GRAFANA_LOKI","destination":"evil.example.com","differs":["hostname"],"at":"2026-03-04T10:29:40Z"}`, "evil.example.com", "its events go to evil.example.com"},
		"a rotation":     {`"destination":"relay","declared":{"destination_type":"GRAFANA_LOKI","destination":"relay.example.com","differs":["secret"],"at":"2026-03-04T10:29:40Z"}`, "this relay", ""},
		"hostile":        {`"destination":"none","declared":{"destination_type":"GRAFANA_LOKI","destination":"a\u001b[2Jb","at":"2026-03-04T10:29:40Z"}`, "a·[2Jb", "its events go to a·[2Jb"},
	} {
		sections := statusOf(t, "well")
		sections["environments"] = json.RawMessage(`[{"project":"p","environment":"e","state":"silent",` + c.environment + `}]`)
		s := screen{status: readStatus(sections)}
		lines := s.environments(brush{}, 160)
		cells := strings.Split(strings.TrimSpace(lines[1]), "  ")
		assert.Equal(t, c.cell, strings.TrimSpace(cells[len(cells)-1]), name)
		text := strings.Join(lines[2:], "\n")
		if c.note == "" {
			assert.NotContains(t, text, "its events go", name)
		}
		assert.Contains(t, text, c.note, name)
		assert.False(t, strings.ContainsFunc(strings.Join(lines, ""), plaintext.Steers), name)
	}
}
