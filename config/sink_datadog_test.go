package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parseDatadog(t *testing.T, fields string) (*Datadog, []Problem) {
	t.Helper()
	cfg, warnings, err := parse(t, minimal+"sinks:\n  - {name: d, datadog: {api_key: \"${KEY}\", "+fields+"}}\n")
	require.NoError(t, err)
	return cfg.Sinks[0].Datadog, warnings
}

func TestDatadogDefaults(t *testing.T) {
	t.Parallel()
	got, warnings := parseDatadog(t, "")
	assert.Empty(t, warnings)
	want := &Datadog{
		APIKey: got.APIKey, Site: "datadoghq.com", Source: "auditrelay", Service: "auditrelay",
		Tags:       []string{"env:{environment}", "project:{project}"},
		Attributes: "merged", Oversize: "reject", OutsideWindow: "reject", Compression: "gzip",
	}
	assert.Equal(t, want, got)
	assert.Equal(t, "hunter2-of-some-length", got.APIKey.Reveal())

	got, warnings = parseDatadog(t, "tags: [], url: 'http://127.0.0.1:8080/'")
	assert.Empty(t, warnings)
	assert.Empty(t, got.Tags, "none are wanted")
	assert.Empty(t, got.Site, "url is instead of it")
}

func TestDatadogSites(t *testing.T) {
	t.Parallel()
	assert.Len(t, datadogSites(), 9)
	for _, site := range datadogSites() {
		_, warnings := parseDatadog(t, "site: "+site)
		assert.Empty(t, warnings, site)
	}
	got, warnings := parseDatadog(t, "site: us9.datadoghq.com")
	assert.Equal(t, "us9.datadoghq.com", got.Site, "there will be new ones")
	require.Len(t, warnings, 1)
	assert.Equal(t, "sinks[0].datadog.site", warnings[0].Field)
	assert.Contains(t, warnings[0].Reason, "check the name")
}

// TestDatadogExampleShowsTheDefaults compares all fields except matters of taste.
func TestDatadogExampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	cfg, _ := decodeAll(t)
	want := Datadog{}
	want.setDefaults(nil)
	for _, s := range cfg.Sinks {
		if got := s.Datadog; got != nil {
			want.APIKey, want.URL, want.Hostname, want.TLS = got.APIKey, got.URL, got.Hostname, got.TLS
			assert.Equal(t, want, *got)
			return
		}
	}
	t.Fatal("the example has no datadog")
}
