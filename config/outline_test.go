package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

func outlined(t testing.TB, c *Config) string {
	t.Helper()
	raw, err := json.Marshal(c.Outline())
	require.NoError(t, err)
	return string(raw)
}

func TestOutline(t *testing.T) {
	t.Parallel()
	none := time.Duration(0)
	c := &Config{
		DataDir:      "/var/lib/auditrelay",
		Workspace:    &Workspace{BaseURL: "https://management.example.com", KeyID: "workspace-key-live-1", Secret: secret.New("hunter2-hunter2")},
		Environments: []Environment{{Project: "shop", Environment: "live", Stream: &Stream{Relay: &StreamRelay{Hostname: "relay.example.com"}}}},
		Streaming:    Streaming{RotationOverlap: &none, Interval: time.Minute},
		Audit: Audit{
			SignCommand: []string{"/usr/bin/sign", "--pin", "1234"},
			Witnesses:   []Witness{{URL: "https://w.example.com", Key: "witness.example.com/audit+69551bfd+BAaUGjQ1NgWmxrtUxKPDhqOVjEvEsVrpUT/DP3uECHQP"}},
		},
		Sinks: []Sink{{
			Name: "soc", BatchBytes: 1 << 20,
			Match:   &Match{CEL: `body.user == "a@example.com"`},
			Webhook: &Webhook{URL: secret.New("https://hooks.example.com/T0/B0/secret"), Headers: map[string]secret.Text{"X-Token": secret.New("hunter2")}},
		}},
	}
	assert.JSONEq(t, `{
		"data_dir": "/var/lib/auditrelay",
		"workspace": {"base_url": "https://management.example.com", "key_id": "workspace-key-live-1", "secret": "[redacted]"},
		"environments": {"shop/live": {"project": "shop", "environment": "live", "stream": {"relay": {"hostname": "relay.example.com"}}}},
		"streaming": {"rotation_overlap": "0s", "interval": "1m0s"},
		"audit": {
			"sign_command": ["/usr/bin/sign", "and 2 arguments, not shown"],
			"witnesses": {"witness.example.com/audit+69551bfd+BAaUGjQ1NgWmxrtUxKPDhqOVjEvEsVrpUT/DP3uECHQP":
				{"url": "https://w.example.com", "key": "witness.example.com/audit+69551bfd+BAaUGjQ1NgWmxrtUxKPDhqOVjEvEsVrpUT/DP3uECHQP"}}
		},
		"sinks": {"soc": {"name": "soc", "batch_bytes": "1MiB", "match": {"cel": "body.user == \"a@example.com\""},
			"webhook": {"url": "[redacted]", "headers": {"X-Token": "[redacted]"}}}}
	}`, outlined(t, c))
	assert.Equal(t, "{}", outlined(t, &Config{}))
}

// A secret in any text of the configuration, even in the wrong field, is in no outline; and
// with another secret the outline is the same.
func TestNoSecretInAnOutline(t *testing.T) {
	t.Parallel()
	cfg, _ := decodeAll(t)
	count := 0
	texts(reflect.ValueOf(cfg), "", func(path string, v reflect.Value) {
		if v.Kind() != reflect.String || !v.CanSet() {
			return
		}
		count++
		was := v.String()
		for _, value := range plantedIn(count, testing.Short()) {
			if strings.HasSuffix(path, ".cel") && !holdsKey(value) { // no such condition is valid
				continue
			}
			v.SetString(value)
			assertUnsaid(t, value, path, outlined(t, cfg))
			assertUnsaid(t, value, path, fmt.Sprintf("%+v", Diff(&Config{}, cfg)))
		}
		v.SetString(was)
	})
	assert.Greater(t, count, 50)
	address := func(url string) string {
		return outlined(t, &Config{Journal: Journal{URL: url}})
	}
	assert.Contains(t, address("nats://me:pin@nats-1:4222,nats://me:pin@nats-2:4222"), "nats://nats-1:4222 [redacted],nats://nats-2:4222 [redacted]")
	assert.Equal(t, address("nats://me:1234@n:4222?x=1"), address("nats://me:9999@n:4222?x=2"))
}
