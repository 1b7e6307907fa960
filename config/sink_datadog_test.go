package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parseDatadog(t *testing.T, fields string) (*Datadog, []Problem) {
	t.Helper()
	cfg, warnings, err := parse(t, minimal+"sinks:\n  - {name: d, datadog: {api_key: \"${DATADOG_KEY}\", "+fields+"}}\n")
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
	assert.Equal(t, "0123456789abcdef0123456789ABCDEF", got.APIKey.Reveal())

	got, warnings = parseDatadog(t, "tags: [], url: 'http://127.0.0.1:8080/'")
	assert.Empty(t, warnings)
	assert.Empty(t, got.Tags, "none are wanted")
	assert.Empty(t, got.Site, "url is instead of it")
}

// A key of another form is probably another kind of key: an application key, or the id of a
// key.
func TestAKeyThatDatadogDidNotMake(t *testing.T) {
	t.Parallel()
	toDatadog := strings.Replace(minimal, `credentials: [{api_key: "${KEY}"}]`, `stream: {datadog: {api_key: "${DATADOG_KEY}", site: US}}`, 1)
	toDatadog += "workspace: {base_url: \"https://api.example.com\", key_id: k, secret: \"${KEY}\"}\n"
	for key, fine := range map[string]bool{
		"0123456789abcdef0123456789abcdef": true, "0123456789ABCDEF0123456789abcdef": true,
		"0123456789abcdef0123456789abcdef01234567": false, "0123456789abcdef": false, "0123456789abcdef0123456789abcdeg": false,
		"3c0c3965-368d-4b5b-9f4e-4f0cb0a9d5f1": false,
	} {
		for field, text := range map[string]string{
			"sinks[0].datadog.api_key":               minimal + "sinks:\n  - {name: d, datadog: {api_key: \"${DATADOG_KEY}\"}}\n",
			"environments[0].stream.datadog.api_key": toDatadog,
			"":                                       minimal + "sinks:\n  - {name: own, datadog: {api_key: \"${DATADOG_KEY}\", url: 'http://127.0.0.1:8080/'}}\n",
		} {
			_, warnings, err := Parse("relay.yaml", []byte(text), environment(map[string]string{"KEY": "hunter2-of-some-length", "DATADOG_KEY": key}))
			require.NoError(t, err)
			about := ""
			for _, w := range warnings {
				if strings.Contains(w.Reason, "32 hexadecimal digits") {
					about = w.Field
				}
				assert.NotContains(t, w.Reason, key)
			}
			if fine {
				field = ""
			}
			assert.Equal(t, field, about, key)
		}
	}
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
	fillIn(&want)
	for _, s := range cfg.Sinks {
		if got := s.Datadog; got != nil {
			want.APIKey, want.URL, want.Hostname, want.TLS = got.APIKey, got.URL, got.Hostname, got.TLS
			assert.Equal(t, want, *got)
			return
		}
	}
	t.Fatal("the example has no datadog")
}
