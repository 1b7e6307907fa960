package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// An external server's message limit is below the limits of ingest: a line above it is
// refused by itself, with the reason.
func TestALineThatTheJournalsServerDoesNotTakeIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), func(o *server.Options) { o.MaxPayload = 64 << 10 })
	cfg := testConfig(t.TempDir())
	cfg.Journal.URL, cfg.Journal.Replicas, cfg.Journal.MaxBytes = srv.ClientURL(), 1, 64<<20
	r := start(t, cfg)

	line := func(id string, size int) string {
		return fmt.Sprintf(`["%d","{\"event_id\":\"%s\",\"pad\":\"%s\"}"]`, time.Now().UnixNano(), id, strings.Repeat("x", size))
	}
	body := `{"streams":[{"stream":{"app":"idp"},"values":[` + line("small", 10) + "," + line("large", 60<<10) + "," + line("fits", 43<<10) + `]}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	code, text := r.do(req)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, text, "2 entries were taken, 1 were not")
	assert.Contains(t, text, "at most 60160 are taken")
	assert.NotContains(t, r.arrived("small", "fits"), "large")
	require.NoError(t, r.stop())
}
