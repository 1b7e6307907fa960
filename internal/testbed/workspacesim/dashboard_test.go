package workspacesim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

const (
	lokiPath    = env + "/event_log_streaming/GRAFANA_LOKI"
	datadogPath = env + "/event_log_streaming/DATADOG"
)

// config is the streaming config of the first environment as its own type's operation
// 13 shows it; nil: none.
func (a *api) config() map[string]any {
	a.t.Helper()
	for _, path := range []string{lokiPath, datadogPath} {
		if r := a.call("GET", path, ""); r.status == 200 {
			c, _ := r.body["event_log_streaming_config"].(map[string]any)
			return c
		}
	}
	return nil
}

// act calls the admin address, and returns its error.
func (a *api) act(path, fields string) string {
	a.t.Helper()
	status, body := admin(a.t, a.sim.Admin(), "POST", "/_sim/"+path, `{"project_slug":"acme-portal","environment_slug":"production"`+fields+`}`)
	var said struct {
		Done  bool   `json:"done"`
		Error string `json:"error"`
	}
	require.NoError(a.t, json.Unmarshal([]byte(body), &said), body)
	assert.Equal(a.t, status == 200, said.Done, body)
	return said.Error
}

// Settings have the forms that the tests of public clients expect.
func TestStrictSettings(t *testing.T) {
	t.Parallel()
	for strict, want := range map[bool][]string{
		true: {"<nil>", "map[string]interface {}"}, false: {"json.Number", "string"},
	} {
		a := newAPI(t, Options{StrictSettings: strict})
		zxcvbn := false
		for _, path := range []string{env, strings.Replace(env, "production", "test", 1)} {
			config, _ := a.call("GET", path+"/password_strength_config", "").body["password_strength_config"].(map[string]any)
			if config["validation_policy"] == "ZXCVBN" {
				zxcvbn = true
				assert.Contains(t, config, "luds_min_password_length")
				assert.Equal(t, want[0], fmt.Sprintf("%T", config["luds_min_password_length"]))
				assert.Equal(t, want[0], fmt.Sprintf("%T", config["luds_min_password_complexity"]))
			}
		}
		assert.True(t, zxcvbn)
		profiles, _ := a.call("GET", env+"/trusted_token_profiles", "").body["profiles"].([]any)
		require.NotEmpty(t, profiles)
		for _, p := range profiles {
			assert.Equal(t, want[1], fmt.Sprintf("%T", p.(map[string]any)["attribute_mapping"]))
		}
		bare := 0
		templates, _ := a.call("GET", proj+"/email_templates", "").body["email_templates"].([]any)
		for _, one := range templates {
			if _, has := one.(map[string]any)["custom_html_customization"]; !has {
				bare++
			}
		}
		assert.Equal(t, map[bool]int{true: 2, false: 0}[strict], bare)

		prebuilt, login := proj+"/default_email_templates/PREBUILT", proj+"/default_email_templates/LOGIN"
		assert.Equal(t, map[bool]int{true: 400, false: 200}[strict], a.call("DELETE", prebuilt, "").status)
		assert.Equal(t, 200, a.call("DELETE", login, "").status)
		assert.Equal(t, map[bool]int{true: 200, false: 404}[strict], a.call("DELETE", login, "").status, "it is unset already")
		a.fails(a.call("DELETE", "/pwa/v3/projects/nobody/default_email_templates/LOGIN", ""), 404, "project_not_found")
		a.fails(a.call("GET", login, ""), 404, "default_email_template_not_found")
	}
}

// With all modes on, only a person in the dashboard creates and enables a config.
func TestStrictStreaming(t *testing.T) {
	t.Parallel()
	var o Options
	o.StrictStreaming()
	a := newAPI(t, o)
	a.fails(a.call("PUT", lokiPath, lokiBody), 404, "event_log_streaming_config_not_found", "dashboard")
	assert.Nil(t, a.config())

	inner := `"destination_config":{"datadog":{"api_key":"0123456789abcdef","site":"US"}}`
	require.Empty(t, a.act("streaming_create", `,"destination_type":"DATADOG",`+inner))
	assert.Equal(t, StatusDisabled, a.config()["streaming_status"])
	a.fails(a.call("PUT", lokiPath, lokiBody), 409, "event_log_streaming_destination_type_mismatch", "DATADOG", "GRAFANA_LOKI")
	require.Equal(t, 200, a.call("PUT", datadogPath, datadogBody).status)
	assert.Equal(t, StatusDisabled, a.config()["streaming_status"], "operation 14 enables nothing")

	require.Empty(t, a.act("streaming_status", `,"status":"ACTIVE"`))
	require.Equal(t, 200, a.call("PUT", datadogPath, datadogBody).status)
	assert.Equal(t, StatusActive, a.config()["streaming_status"], "operation 14 disables nothing")
	assert.Contains(t, a.act("streaming_create", `,"destination_type":"DATADOG",`+inner), "there is one of type DATADOG")
	require.Empty(t, a.act("streaming_delete", ``))
	assert.Nil(t, a.config())
}

// Each mode works alone, and is off by default.
func TestStreamingModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o                    Options
		create, other, again int    // statuses of operation 14
		left                 string // streaming_status at the end
	}{
		"default":     {Options{}, 200, 200, 200, StatusActive},
		"needs any":   {Options{PutNeedsConfig: true}, 404, 404, 404, ""},
		"needs type":  {Options{PutNeedsSameType: true}, 200, 409, 200, StatusActive},
		"keeps":       {Options{PutKeepsStatus: true}, 200, 200, 200, StatusActive},
		"new":         {Options{NewConfigStatus: "PENDING"}, 200, 200, 200, "PENDING"},
		"new, keeps":  {Options{NewConfigStatus: "PENDING", PutKeepsStatus: true}, 200, 200, 200, "PENDING"},
		"never keeps": {Options{NewConfigStatus: StatusActive}, 200, 200, 200, StatusActive},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, c.o)
			assert.Equal(t, c.create, a.call("PUT", lokiPath, lokiBody).status)
			assert.Equal(t, c.other, a.call("PUT", datadogPath, datadogBody).status)
			assert.Equal(t, c.again, a.call("PUT", lokiPath, lokiBody).status)
			if c.left == "" {
				assert.Nil(t, a.config())
				return
			}
			assert.Equal(t, c.left, a.config()["streaming_status"])
			require.Empty(t, a.act("streaming_status", `,"status":"DISABLED"`))
			require.Equal(t, 200, a.call("PUT", lokiPath, lokiBody).status)
			want := c.left
			if c.o.PutKeepsStatus {
				want = StatusDisabled
			}
			assert.Equal(t, want, a.config()["streaming_status"])
		})
	}
}

func TestDashboardEdits(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	for _, path := range []string{"streaming_edit", "streaming_delete", "streaming_status"} {
		assert.Contains(t, a.act(path, ``), "it has no streaming config", path)
	}
	require.Equal(t, 200, a.call("PUT", lokiPath, lokiBody).status)
	e, err := a.sim.find("acme-portal", "production")
	require.NoError(t, err)
	before := e.streaming

	require.Empty(t, a.act("streaming_edit", `,"same_last_four":true`))
	assert.False(t, e.streaming.password.Equal(before.password.Reveal()))
	assert.Equal(t, before.read(), a.config(), "a read tells nothing")
	require.Empty(t, a.act("streaming_edit", `,"secret":"another-secret-9876","hostname":"elsewhere.example.com"`))
	assert.True(t, e.streaming.password.Equal("another-secret-9876"))
	assert.Equal(t, map[string]any{"grafana_loki": map[string]any{
		"hostname": "elsewhere.example.com", "username": "u", "password_last_four": "9876",
	}}, a.config()["destination_config"])

	for fields, says := range map[string]string{
		`,"site":"US"`:                             "has no such field",
		`,"hostname":"https://x"`:                  "is not a host name",
		`,"secret":"x","same_last_four":true`:      "not both",
		`,"nope":1`:                                "unknown field",
		`,"environment_slug":"x","secret":"x"`:     "there is no acme-portal/x",
		`,"project_slug":"x","same_last_four":1.5`: "cannot unmarshal",
	} {
		assert.Contains(t, a.act("streaming_edit", fields), says)
	}
	require.Equal(t, 200, a.call("PUT", datadogPath, datadogBody).status)
	assert.Contains(t, a.act("streaming_edit", `,"hostname":"x"`), "has no such field")
	assert.Contains(t, a.act("streaming_edit", `,"site":"MOON"`), `site "MOON" is unknown`)
	require.Empty(t, a.act("streaming_edit", `,"site":"EU","same_last_four":true`))
	assert.Equal(t, map[string]any{"datadog": map[string]any{"site": "EU", "api_key_last_four": "cdef"}}, a.config()["destination_config"])
	all := a.sim.StreamingConfigs()
	require.Len(t, all, 6)
	assert.Equal(t, "DATADOG", all[0].Config["destination_type"])
	assert.Nil(t, all[1].Config)
	require.Empty(t, a.act("streaming_delete", ``))
	for body, says := range map[string]string{
		`,"destination_type":"X","destination_config":{}`:                        "is not one of",
		`,"destination_type":"DATADOG","destination_config":{}`:                  "field is required",
		`,"destination_type":"DATADOG"`:                                          "body is not valid JSON",
		`,"destination_type":"GRAFANA_LOKI","destination_config":{"datadog":{}}`: "destination_config.grafana_loki",
	} {
		assert.Contains(t, a.act("streaming_create", body), says)
	}
}

// A silent stream is ACTIVE; its events are counted as unstreamed.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.streamTo(d, "production")
	a.sim.Start(t.Context())
	a.generated(100)
	require.Empty(t, a.act("stream_faults", `,"silent":true`))
	a.settle()
	silent := a.sim.Counts()
	a.sim.Resume()
	waiting.Until(t, func() bool { return a.sim.Counts().Unstreamed >= silent.Unstreamed+5000 })
	assert.Equal(t, silent.Generated, a.sim.Counts().Generated)
	assert.Equal(t, StatusActive, a.config()["streaming_status"])
	require.Empty(t, a.act("stream_faults", ``))
	a.generated(silent.Generated + 100)
	a.settle()
	a.sameIDs(d)
}

// Held events arrive together, with their own times.
func TestHeldEventsAreNotLost(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.streamTo(d, "production")
	require.NoError(t, a.sim.SetStreamFaults("acme-portal", "production", StreamFaults{Hold: true}))
	a.sim.Start(t.Context())
	a.generated(2000)
	assert.Zero(t, a.sim.Counts().Pushes)
	require.NoError(t, a.sim.SetStreamFaults("acme-portal", "production", StreamFaults{}))
	assert.Zero(t, a.settle().Dropped)
	a.sameIDs(d)
	require.Error(t, a.sim.SetStreamFaults("acme-portal", "nowhere", StreamFaults{}))
}

func TestPushesWithTheWrongSecretWhileDisabled(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	require.Equal(t, 200, a.call("PUT", lokiPath, lokiBody).status)
	require.NoError(t, a.sim.SetStreamingStatus("acme-portal", "production", StatusDisabled))
	e, err := a.sim.find("acme-portal", "production")
	require.NoError(t, err)
	assert.Nil(t, e.target.Load())
	require.Empty(t, a.act("stream_faults", `,"push_inactive":true,"secret":"wrong"`))
	require.NotNil(t, e.target.Load())
	assert.True(t, e.target.Load().password.Equal("wrong"))
	require.Equal(t, 200, a.call("PUT", datadogPath, datadogBody).status)
	assert.True(t, e.target.Load().apiKey.Equal("wrong"))
	require.NoError(t, a.sim.SetStreamFaults("acme-portal", "production", StreamFaults{PushInactive: true, Secret: secret.Text{}}))
	assert.True(t, e.target.Load().apiKey.Equal("0123456789abcdef"))
}

// Late events have the times at which they happened.
func TestLateEvents(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a, d := newAPI(t, fast(Options{Now: func() time.Time { return now }})), newDestination(t)
	a.streamTo(d, "production")
	times := func() (all []time.Time) {
		e, err := a.sim.find("acme-portal", "production")
		require.NoError(t, err)
		e.stream.mu.Lock()
		defer e.stream.mu.Unlock()
		for _, s := range e.stream.queue {
			all = append(all, time.Unix(0, s.at).UTC(), time.Unix(0, s.at+int64(s.To-s.From)*s.step).UTC())
		}
		e.stream.queue = nil
		return all
	}
	require.Empty(t, a.act("burst", `,"events":60,"age":"6h","span":"1h"`))
	assert.Equal(t, []time.Time{
		now.Add(-6 * time.Hour), now.Add(-5*time.Hour - 10*time.Minute), // a push of 50
		now.Add(-5*time.Hour - 10*time.Minute), now.Add(-5 * time.Hour),
	}, times())
	require.Empty(t, a.act("stream_faults", `,"lateness":"6h"`))
	e, _ := a.sim.find("acme-portal", "production")
	e.stream.happen(1, time.Second)
	assert.Equal(t, now.Add(-6*time.Hour-time.Second), times()[0])
	require.Empty(t, a.act("stream_faults", `,"lateness":"-2h","one_in":10`))
	for range 4 {
		e.stream.happen(7, time.Second)
	}
	assert.Equal(t, now.Add(2*time.Hour-time.Second), times()[0])
	assert.EqualValues(t, 18, e.stream.counts.Unstreamed, "of 20, two were streamed")
	for _, bad := range []string{`,"events":0`, `,"events":1,"age":"-1s"`, `,"events":1,"age":"1s","span":"2s"`, `,"events":1000000000`} {
		assert.Contains(t, a.act("burst", bad), "events must be in")
	}
	require.Error(t, a.sim.Burst("acme-portal", "nowhere", 1, 0, 0))
}
