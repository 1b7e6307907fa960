package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

func TestWebhookLoads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("from-a-file\n"), 0o600))
	cfg, warnings, err := parse(t, minimal+`
sinks:
  - name: w
    webhook:
      url: https://soar.example.com/hooks/${KEY}?a=b
      secret: ${KEY}-and-enough-of-it-to-be-long
      headers: {Authorization: "Bearer ${KEY}", X-File: "file:`+file+`", X-Plain: plain}
      tls: {}
  - {name: local, batch_events: 7, batch_bytes: 1MiB, webhook: {url: "http://127.0.0.1:8080", secret: "${KEY}"}}
`)
	require.NoError(t, err)
	require.Len(t, warnings, 2)
	assert.Equal(t, "sinks[0].webhook.headers.X-Plain", warnings[0].Field)
	assert.Equal(t, "sinks[1].webhook.secret", warnings[1].Field)
	assert.Contains(t, warnings[1].Reason, "shorter than 24 bytes")

	w := cfg.Sinks[0].Webhook
	assert.Equal(t, "https://soar.example.com/hooks/hunter2-of-some-length?a=b", w.URL.Reveal())
	assert.Equal(t, map[string]secret.Text{
		"Authorization": secret.New("Bearer hunter2-of-some-length"), "X-File": secret.New("from-a-file"), "X-Plain": secret.New("plain"),
	}, w.Headers)
	for _, form := range []string{"%v", "%+v", "%#v"} {
		assert.NotContains(t, fmt.Sprintf(form, *w), "hunter2-of-some-length")
	}
	assert.Equal(t, 100, cfg.Sinks[0].BatchEvents)
	assert.Equal(t, Size(512<<10), cfg.Sinks[0].BatchBytes)
	assert.Equal(t, 7, cfg.Sinks[1].BatchEvents)
	assert.Equal(t, Size(1<<20), cfg.Sinks[1].BatchBytes)
}

func TestMapsOfStrings(t *testing.T) {
	t.Parallel()
	d := newDecoder(environment(map[string]string{"KEY": "hunter2-of-some-length"}))
	cfg := d.document([]byte(`
sinks:
  - loki: {labels: {a: "${KEY}", b.c: "{type}"}}
  - loki: {labels: {}}
  - loki: {labels: }
`))
	require.Empty(t, d.errors)
	assert.Equal(t, map[string]string{"a": "hunter2-of-some-length", "b.c": "{type}"}, cfg.Sinks[0].Loki.Labels)
	assert.Empty(t, cfg.Sinks[1].Loki.Labels)
	assert.Nil(t, cfg.Sinks[2].Loki.Labels)
}

// The format is written at the sink or in its webhook section, and means the same.
func TestFormats(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := parse(t, minimal+`
sinks:
  - {name: a, file: {path: /tmp/a.jsonl}}
  - {name: b, format: ocsf, file: {path: /tmp/b.jsonl}}
  - {name: c, format: slack, webhook: {url: "https://a"}}
  - {name: d, webhook: {url: "https://a", format: slack}}
  - {name: e, format: ocsf, webhook: {url: "https://a", format: ocsf}}
  - {name: f, webhook: {url: "https://a"}}
  - {name: g, format: ocsf, kafka: {brokers: ["kafka:9092"]}}
`)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	var formats []string
	for _, s := range cfg.Sinks {
		formats = append(formats, s.Format)
	}
	assert.Equal(t, 5*time.Second, cfg.Sinks[3].BatchWait, "a burst is one message")
	assert.Zero(t, cfg.Sinks[5].BatchWait)
	assert.Equal(t, []string{FormatCloudEvents, FormatOCSF, FormatSlack, FormatSlack, FormatOCSF, FormatCloudEvents, FormatOCSF}, formats)
}
