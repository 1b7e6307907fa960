package management

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

const lokiPassword = `pä"ss/word+0123456789`

var lokiDestination = Shape{Type: GrafanaLoki, Hostname: "relay.example.com", Username: "u"}

func TestWriteSendsTheSecretAndShowsItNowhere(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Config map[string]map[string]string `json:"destination_config"`
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		assert.Equal(t, map[string]map[string]string{
			"grafana_loki": {"hostname": "relay.example.com", "username": "u", "password": lokiPassword},
		}, body.Config)
		echo, _ := json.Marshal(map[string]any{"event_log_streaming_config": map[string]any{
			"destination_type": "GRAFANA_LOKI", "streaming_status": "WARMING_UP", "note": "set to " + lokiPassword, "Api-Key": 123456789,
			"destination_config": body.Config,
		}})
		answer(w, 200, string(echo))
	})
	a, err := c.SetEventLogStreaming(t.Context(), "p", "e", lokiDestination, secret.New(lokiPassword))
	require.NoError(t, err)
	assert.Equal(t, StreamingStatus("WARMING_UP"), a.Status)
	assert.Equal(t, lokiDestination, *a.Shape, "no answer holds a secret, nor a part of one")
	assert.JSONEq(t, `{"destination_type":"GRAFANA_LOKI","streaming_status":"WARMING_UP","note":"set to [redacted]","Api-Key":"[redacted]",
		"destination_config":{"grafana_loki":{"hostname":"relay.example.com","username":"u","password":"[redacted]"}}}`, string(a.Raw))
	typed, err := json.Marshal(a)
	require.NoError(t, err)
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", a, a, a), string(typed)} {
		assert.NotContains(t, shown, "word+0123456789")
	}
}

func TestReadIsRedactedToo(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"event_log_streaming_config":{"destination_type":"DATADOG","destination_config":{"datadog":
			{"api_key":"unmasked-0123","api_key_last_four":"0123","site":"MARS"}},"streaming_status":"ACTIVE"}}`)
	})
	a, err := c.EventLogStreaming(t.Context(), "p", "e", Datadog)
	require.NoError(t, err)
	assert.NotContains(t, string(a.Raw), "unmasked")
	assert.Contains(t, string(a.Raw), `"api_key_last_four":"0123"`)
	assert.Equal(t, "MARS", a.Site)
}

// A name that stands twice may be read either way: what the trail keeps, what is compared and what
// is redacted would differ. The document names each member once.
func TestAStreamingConfigWithANameTwiceIsNotBelieved(t *testing.T) {
	t.Parallel()
	const evil = `{"grafana_loki":{"hostname":"evil.example.com","username":"u","password_last_four":"4321","password":"unmasked-4321"}}`
	const good = `{"grafana_loki":{"hostname":"relay.example.com","username":"u","password_last_four":"4321"}}`
	for name, config := range map[string]string{
		"a destination":          `{"destination_type":"GRAFANA_LOKI","destination_config":` + evil + `,"destination_config":` + good + `}`,
		"written in another way": `{"destination_type":"GRAFANA_LOKI","destination_config":` + evil + `,"destination_\u0063onfig":` + good + `}`,
		"a status":               `{"destination_type":"GRAFANA_LOKI","destination_config":` + good + `,"streaming_status":"DISABLED","streaming_status":"ACTIVE"}`,
		"deep":                   `{"destination_type":"GRAFANA_LOKI","destination_config":` + good + `,"later":[{"a":{"b":1,"b":2}}]}`,
		"half a character":       `{"destination_type":"GRAFANA_LOKI","destination_config":` + good + `,"later":"\ud800"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, `{"request_id":"r1","status_code":200,"event_log_streaming_config":`+config+`}`)
			})
			a, err := c.EventLogStreaming(t.Context(), "p", "e", GrafanaLoki)
			require.ErrorContains(t, err, "decode event_log_streaming_config")
			assert.Nil(t, a.Shape)
			assert.NotContains(t, string(a.Raw), "unmasked")
			set, err := c.SetEventLogStreaming(t.Context(), "p", "e", lokiDestination, secret.New(lokiPassword))
			require.Error(t, err)
			assert.Equal(t, 200, set.StatusCode, "it was set all the same")
			assert.NotContains(t, string(set.Raw), "unmasked")
		})
	}
}

// The order of members means nothing.
func TestTheOrderOfAStreamingConfigMeansNothing(t *testing.T) {
	t.Parallel()
	configs := []string{
		`{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":"a","username":"u","password_last_four":"4321"}},"streaming_status":"ACTIVE","later":12345678901234567890}`,
		`{"later":12345678901234567890,"streaming_status":"ACTIVE","destination_config":{"grafana_loki":{"password_last_four":"4321","username":"u","hostname":"a"}},"destination_type":"GRAFANA_LOKI"}`,
	}
	var got []StreamingAnswer
	for _, config := range configs {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, `{"event_log_streaming_config":`+config+`}`)
		})
		a, err := c.EventLogStreaming(t.Context(), "p", "e", GrafanaLoki)
		require.NoError(t, err)
		got = append(got, a)
	}
	assert.Equal(t, got[0], got[1])
	assert.Contains(t, string(got[0].Raw), "12345678901234567890", "no digit is lost")
}

// A deletion's answer has no resource, whatever an answer puts under a name of no letters.
func TestAnAnswerWithoutAResourceShowsNothing(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"request_id":"r1","status_code":200,"":{"secret":"unmasked-0123"}}`)
	})
	a, err := c.Change(t.Context(), DeleteSecret, nil, "p", "e", "s1")
	require.NoError(t, err)
	assert.Nil(t, a.Raw)
	_, err = c.Change(t.Context(), UpdateRedirectURL, RedirectURLUpdate{}, "p", "e", "https://x")
	require.ErrorIs(t, err, ErrNoResource)
	made, err := c.Migrate(t.Context(), "/v1/x", []byte("{}"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"request_id":"r1","status_code":200,"":{"secret":"[redacted]"}}`, string(made.Raw))
}

func TestWriteRefusesAnUnknownType(t *testing.T) {
	t.Parallel()
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") })
	for _, to := range []Shape{{}, {Type: "SPLUNK"}, {Type: "datadog", Site: "US"}} {
		_, err := c.SetEventLogStreaming(t.Context(), "p", "e", to, secret.New(lokiPassword))
		require.Error(t, err)
	}
}

func TestErrorsAreScrubbed(t *testing.T) {
	t.Parallel()
	basic := base64.StdEncoding.EncodeToString([]byte(testKey + ":" + testSecret))
	quoted, _ := json.Marshal(lokiPassword)
	for name, body := range map[string]string{
		"documented": `{"status_code":400,"request_id":"r-` + testSecret + `","error_type":"bad","error_message":"bad password ` +
			strings.Trim(string(quoted), `"`) + `","error_url":"https://x/?k=` + testSecret + `"}`,
		"text":   "invalid Authorization: Basic " + basic + " and " + lokiPassword,
		"html":   "<p>" + strings.Repeat("x", 480) + lokiPassword,
		"quoted": `oops {"password":` + string(quoted),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 400, body) })
			_, err := c.SetEventLogStreaming(t.Context(), "p", "e", lokiDestination, secret.New(lokiPassword))
			var api *APIError
			require.ErrorAs(t, err, &api)
			shown := fmt.Sprintf("%v %+v", err, *api)
			for _, s := range []string{testSecret, lokiPassword, "0123456789", basic, `p\u00e4`} {
				assert.NotContains(t, shown, s)
			}
			assert.LessOrEqual(t, len(api.Message), 510)
		})
	}
}

func TestTransportErrorsAreScrubbed(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		_, _ = io.WriteString(conn, "nonsense "+testSecret+"\r\n\r\n")
		_ = conn.Close()
	})
	c.options.MaxAttempts = 1
	_, err := c.Project(t.Context(), "p")
	require.ErrorContains(t, err, "malformed")
	assert.NotContains(t, err.Error(), testSecret)
}

func TestAPIError(t *testing.T) {
	t.Parallel()
	long := &APIError{Status: 429, RetryAfter: 24 * time.Hour}
	assert.Equal(t, "management API answered 429, and asks to wait 24h0m0s", long.Error())
	for name, tc := range map[string]struct {
		status int
		body   string
		want   APIError
	}{
		"documented": {
			401, `{"status_code":401,"request_id":"r1","error_type":"unauthorized_credentials","error_message":"Unauthorized credentials.","error_url":"https://docs/api/errors/401"}`,
			APIError{Status: 401, RequestID: "r1", Type: "unauthorized_credentials", Message: "Unauthorized credentials.", URL: "https://docs/api/errors/401"},
		},
		"wrong types": {404, `{"error_message":["a"],"request_id":7,"error_type":"x"}`, APIError{Status: 404, Type: "x", Message: "Not Found"}},
		"text":        {418, "no\r\n\x00 coffee \xff", APIError{Status: 418, Message: "no coffee"}},
		"empty":       {404, "", APIError{Status: 404, Message: "Not Found"}},
		"array":       {400, "[1]", APIError{Status: 400, Message: "[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, tc.status, tc.body) })
			_, err := c.Project(t.Context(), "p")
			var api *APIError
			require.ErrorAs(t, err, &api)
			assert.Equal(t, tc.want, *api)
			assert.Equal(t, tc.status == 404, IsNotFound(err))
		})
	}
}

func TestCreateProjectShowsNoSecret(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		assert.JSONEq(t, `{"project_name":"n","vertical":"B2B"}`, string(body))
		assert.Equal(t, "/v1/projects", r.URL.Path)
		answer(w, 201, `{"request_id":"r","project_slug":"n-1","secret":"fresh-0123","live":{"project_secret":["fresh-0123"]},"public_token":"pub"}`)
	})
	a, err := c.CreateProject(t.Context(), "n", "B2B")
	require.NoError(t, err)
	assert.Contains(t, string(a.Raw), `"project_slug":"n-1"`)
	assert.NotContains(t, string(a.Raw), "fresh")
	assert.Contains(t, string(a.Raw), `"public_token":"pub"`)
}

func FuzzRedact(f *testing.F) {
	f.Add(`{"a":1e400,"password":{"x":"SECRET"},"b":[true,null,"<&>"]}`)
	f.Add(`{"apiKey":"SECRET","api_key_last_four":"CRET","password":1,"password":"SECRET"}`)
	f.Add(`[[[]],{}]`)
	f.Add(`"x"`)
	f.Fuzz(func(t *testing.T, in string) {
		out, err := redact(json.RawMessage(in))
		require.Equal(t, json.Valid([]byte(in)), err == nil)
		if err != nil {
			return
		}
		require.True(t, json.Valid(out))
		again, err := redact(out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"request_id":"r","event_log_streaming_config":{"destination_config":{"grafana_loki":{"password":"x"}}}}`))
	f.Add([]byte(`{"event_log_streaming_config":null}`))
	f.Add([]byte(`{"error_message":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		members, _, err := reply{status: 200, body: body}.members(newScrubber())
		if err != nil {
			return
		}
		_, _ = StreamingOf(members["event_log_streaming_config"])
		e := newAPIError(&http.Response{StatusCode: 500}, body, newScrubber(secret.New(testSecret)))
		require.NotEmpty(t, e.Error())
	})
}
