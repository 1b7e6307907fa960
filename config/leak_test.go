package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoSecretInErrors spoils a configuration at every place, and looks for its secrets in
// everything that is said about it.
func TestNoSecretInErrors(t *testing.T) {
	t.Parallel()
	const marker = "HUNTER2"
	source := `data_dir: /tmp/relay
workspace:
  base_url: https://management.example.com
  key_id: a
  secret: HUNTER2-a
environments:
  - project: shop
    environment: live
    stream:
      grafana_loki: {hostname: loki.example.com, username: u, password: HUNTER2-b, query: {selector: '{a="b"}', username: r, password: HUNTER2-k}}
    credentials:
      - username: push
        password: "HUNTER2-c-of-some-length"
      - {api_key: '${KEY}'}
sinks:
  - name: one
    kafka:
      brokers: [127.0.0.1:9092]
      sasl: {mechanism: plain, username: u, password: HUNTER2-d}
    redact:
      remove: [/user/phone]
      hash:
        - /user/email
      hash_key: HUNTER2-f-0123456789
  - name: two
    webhook:
      url: https://hooks.example.com/HUNTER2-f
      secret: whsec_SFVOVEVSMi1nLUhVTlRFUjItZy1IVU5URVIyLWc=
      headers: {X-Token: HUNTER2-h, Authorization: 'Bearer HUNTER2-i'}
  - name: three
    webhook:
      url: https://hooks.example.com/HUNTER2-f
      headers:
        X-Token: HUNTER2-j
        Authorization: Bearer ${KEY}
`
	env := environment(map[string]string{"KEY": "HUNTER2-e-of-some-length"})
	_, warnings, err := Parse("x", []byte(source), env)
	require.NoError(t, err)
	require.Len(t, warnings, 10, "an address gives none")

	inserts := []string{" ", "\n", "\t", ":", ": ", "- ", "\"", "'", "{", "}", "[", "]", ",", "#", "&", "*", "!", "|", "%", "@", "\\", "${", "\x00", "é"}
	step := 8 // each meets every eighth place
	if testing.Short() {
		step = len(inserts)
	}
	for at := range len(source) {
		spoilt := []string{source[:at], source[:at] + source[at+1:]}
		for i := at % step; i < len(inserts); i += step {
			spoilt = append(spoilt, source[:at]+inserts[i]+source[at:])
		}
		for _, text := range spoilt {
			_, warnings, err := Parse("x", []byte(text), env)
			said := fmt.Sprint(err, warnings)
			if i := strings.Index(said, marker); i >= 0 {
				require.Failf(t, "a secret is in an error", "%s\n\nof\n%s", said, text)
			}
		}
	}
}
