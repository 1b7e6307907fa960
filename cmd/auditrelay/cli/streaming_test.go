package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// The table has each environment's finding. The remedies are below it, once each.
func TestPrintsTheStateOfStreaming(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	outage := "the API cannot be used\x1b[2J"
	var out bytes.Buffer
	require.NoError(t, show(&out, []streaming.Health{
		{Project: "shop", Environment: "a", Mode: "enforce", Status: "ACTIVE", DestinationType: "GRAFANA_LOKI", Destination: "relay.example.com", LastLook: at, LastChange: at},
		{Project: "shop", Environment: "b", Mode: "enforce", Finding: streaming.FindingDiffers, Differs: []string{"hostname"}, LastLook: at, Fight: &streaming.Fight{Undone: 3, Since: at, NextPut: at.Add(time.Minute)}},
		{Project: "shop", Environment: "c", Mode: "observe", Finding: streaming.FindingDiffers, Differs: []string{"hostname", "secret"}, LastLook: at, Advice: "do it"},
		{Project: "shop", Environment: "d", Mode: "observe", Observed: true, LastError: outage},
		{Project: "shop", Environment: "e", Mode: "enforce", LastError: outage},
		{Project: "shop", Environment: "f", Mode: "enforce", Finding: streaming.FindingNotActive, Status: "DISABLED", LastLook: at},
	}, printStreaming))
	assert.Equal(t, strings.TrimPrefix(`
ENVIRONMENT  MODE     STREAMS TO                      STATUS    FINDING                    SEEN                  CHANGED
shop/a       enforce  GRAFANA_LOKI relay.example.com  ACTIVE    ok                         2026-11-22T12:00:00Z  2026-11-22T12:00:00Z
shop/b       enforce  -                               -         fight                      2026-11-22T12:00:00Z  -
shop/c       observe  -                               -         differs: hostname, secret  2026-11-22T12:00:00Z  -
shop/d       -        -                               -         not seen                   -                     -
shop/e       enforce  -                               -         not seen                   -                     -
shop/f       enforce  -                               DISABLED  not_active                 2026-11-22T12:00:00Z  -
to do: find out who has undone the relay's config of shop/b 3 times in a row since 2026-11-22T12:00:00Z, another relay perhaps; the relay sets it again at 2026-11-22T12:01:00Z
to do: do it
not seen, 2: the API cannot be used·[2J
`, "\n"), out.String())
}
