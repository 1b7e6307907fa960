package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnwatchedStreamsAreNamed has foreign streams that the relay can look at, and others.
func TestUnwatchedStreamsAreNamed(t *testing.T) {
	t.Parallel()
	const text = `data_dir: /tmp/relay
workspace: {base_url: https://management.example.com, key_id: a, secret: "${KEY}"}
environments:
  - {project: shop, environment: a, stream: {grafana_loki: {hostname: loki.example.com, username: u, password: "${KEY}"%s}}}
  - {project: shop, environment: b, stream: {datadog: {api_key: "${KEY}", site: US%s}}}
sinks: [{name: all, file: {path: /tmp/all}}]
`
	values := environment(map[string]string{"KEY": "hunter2-of-some-length"})
	cfg, warnings, err := Parse("x", fmt.Appendf(nil, text, "", ""), values)
	require.NoError(t, err)
	said := fmt.Sprint(warnings)
	assert.Contains(t, said, "environments[0].stream.grafana_loki.query: is left out")
	assert.Contains(t, said, "environments[1].stream.datadog.application_key: is left out")
	assert.False(t, cfg.Environments[0].Stream.Asked() || cfg.Environments[1].Stream.Asked())
	cfg, warnings, err = Parse("x", fmt.Appendf(nil, text, `, query: {selector: '{app="idp"}'}`, `, application_key: "${KEY}", search: "source:idp"`), values)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprint(warnings), "left out")
	assert.True(t, cfg.Environments[0].Stream.Asked() && cfg.Environments[1].Stream.Asked())
}
