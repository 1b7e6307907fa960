package sinks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/ocsftest"
	"github.com/auditrelay/auditrelay/relay"
)

// A sink of any kind takes the format ocsf, and gets none of the redacted values: not in a copy
// of a member, in a label, or in raw_data.
func TestFormatOCSF(t *testing.T) {
	t.Parallel()
	const hidden = "hunter2"
	event := relay.Event{
		ID: "e", Source: "/projects/p/environments/live", Type: "event_log.login", Project: "p", Environment: "live",
		Time: time.Now(), Received: time.Now(), ContentType: "application/json",
		Labels: []relay.Label{{Name: "email", Value: hidden}, {Name: "app", Value: "idp"}},
		Body:   []byte(`{"action":"login","status":"success","user_id":"u-1","email":"` + hidden + `"}`),
	}
	arrived := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- string(body)
		status := http.StatusAccepted
		if strings.HasPrefix(r.URL.Path, "/loki") {
			status = http.StatusNoContent
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(receiver.Close)
	path := filepath.Join(t.TempDir(), "events.jsonl")
	got := func() string { return <-arrived }
	for _, c := range []struct {
		sink config.Sink
		got  func() string
	}{
		{config.Sink{Name: "webhook", Webhook: &config.Webhook{URL: secret.New(receiver.URL)}}, got},
		{config.Sink{Name: "datadog", Datadog: &config.Datadog{APIKey: secret.New("key"), URL: receiver.URL, Compression: "none"}}, got},
		{config.Sink{Name: "loki", Loki: &config.Loki{URL: receiver.URL + "/loki/api/v1/push"}}, func() string {
			body, err := snappy.Decode(nil, []byte(got()))
			require.NoError(t, err)
			return string(body)
		}},
		{config.Sink{Name: "file", File: &config.File{Path: path}}, func() string {
			line, err := os.ReadFile(path)
			require.NoError(t, err)
			return string(line)
		}},
	} {
		c.sink.Format, c.sink.Redact = config.FormatOCSF, &config.Redact{Remove: []string{"/email"}}
		sink, err := Open(c.sink, Deps{})
		require.NoError(t, err, c.sink.Name)
		require.NoError(t, sink.Deliver(t.Context(), []relay.Event{event}), c.sink.Name)
		require.NoError(t, sink.Close())
		text := c.got()
		assert.Contains(t, text, "class_uid", c.sink.Name)
		assert.NotContains(t, text, hidden, c.sink.Name)
		if c.sink.File != nil || c.sink.Webhook != nil {
			require.NoError(t, ocsftest.Validate([]byte(text)), c.sink.Name)
			assert.Equal(t, 1, strings.Count(text, "\n"), c.sink.Name)
		}
	}
}
