package workspacesim

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, header := range map[string]string{
		"none": "", "bearer": "Bearer x", "no base64": "Basic ###", "no colon": basic(DemoKeyID),
		"wrong secret": basic(DemoKeyID + ":x"), "wrong key": basic("x:" + DemoSecret),
		"longer": basic(DemoKeyID + ":" + DemoSecret + "x"), "empty": basic(":"),
	} {
		for _, path := range []string{proj, "/nowhere"} {
			req := a.request("GET", path, "")
			req.Header.Del("Authorization")
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			r, err := a.do(req)
			require.NoError(t, err, name)
			a.fails(r, 401, "unauthorized_credentials")
			assert.Equal(t, "Unauthorized credentials.", r.body["error_message"])
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	for _, path := range []string{
		"/", "/pwa/v3/projects", "/pwa/v3/projects/", proj + "/", "/pwa/v2/projects/acme-portal", "//pwa/v3/projects/acme-portal",
		env + "/allowed_country_codes/whatsapp", env + "/rbac_policy/x", env + "/secrets/", "/v1/projects/acme-portal",
	} {
		a.fails(a.call("GET", path, ""), 404, "route_not_found")
	}
	for path, allow := range map[string]string{
		proj: "GET, PATCH", env + "/redirect_urls": "PUT", proj + "/default_email_templates/LOGIN": "DELETE, GET",
		env + "/event_log_streaming/DATADOG": "GET, PUT", "/v1/projects": "POST", env + "/secrets/x": "DELETE",
	} {
		r := a.call("OPTIONS", path, "")
		a.fails(r, 405, "method_not_allowed", strings.Split(allow, ", ")...)
		assert.Equal(t, allow, r.header.Get("Allow"))
	}
	a.fails(a.call("GET", "/pwa/v3/projects/nobody", ""), 404, "project_not_found", "nobody")
	a.fails(a.call("GET", "/pwa/v3/projects/a%2Fb", ""), 404, "project_not_found", "a/b")
	a.fails(a.call("GET", proj+"/environments/staging/rbac_policy", ""), 404, "environment_not_found", "staging")
	a.fails(a.call("GET", proj+"/default_email_templates/login", ""), 400, "bad_request", "email_template_type")
	a.fails(a.call("GET", env+"/event_log_streaming/SPLUNK", ""), 400, "bad_request", "destination_type", "DATADOG")
}

func TestBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	loki := env + "/event_log_streaming/GRAFANA_LOKI"
	datadog := env + "/event_log_streaming/DATADOG"
	for _, c := range []struct{ method, path, body, says string }{
		{"PATCH", proj, ``, "body is empty"},
		{"PATCH", proj, `{"name":"x"`, "not valid JSON"},
		{"PATCH", proj, `{"name":"x"}{}`, "not valid JSON"},
		{"PATCH", proj, `{"name":"x"} trailing`, "not valid JSON"},
		{"PATCH", proj, `[]`, "must be a JSON object, not array"},
		{"PATCH", proj, `null`, "must be a JSON object, not null"},
		{"PATCH", proj, "{\"name\":\"\xff\"}", "UTF-8"},
		{"PATCH", proj, `{}`, "name: field is required"},
		{"PATCH", proj, `{"name":""}`, "name: must not be empty"},
		{"PATCH", proj, `{"name":null}`, "name: must be a string, not null"},
		{"PATCH", proj, `{"name":7}`, "name: must be a string, not number"},
		{"PATCH", proj, `{"Name":"x"}`, "name: field is required"},
		{"PATCH", proj, `{"name":"x","vertical":"B2B"}`, "vertical: unknown field"},
		{"PATCH", proj, `{"name":"x","name":"y"}`, "name: field is given twice"},
		{"PATCH", proj, `{"name":"` + strings.Repeat("x", 201) + `"}`, "name: is longer"},
		{"PATCH", proj, strings.Repeat("[", 100_000), "not valid JSON"},
		{"PUT", env + "/redirect_urls", `{"valid_types":{}}`, "valid_types: must be an array, not object"},
		{"PUT", env + "/redirect_urls", `{"valid_types":[1]}`, "valid_types[0]: must be an object, not number"},
		{"PUT", env + "/redirect_urls", `{"valid_types":[{"type":"NO"}]}`, "valid_types[0].type: must be one of"},
		{"PUT", env + "/redirect_urls", `{"valid_types":[{"type":"LOGIN"},{"type":"LOGIN"}]}`, "valid_types[1].type: is given twice"},
		{"PUT", env + "/redirect_urls", `{"valid_types":[{"type":"LOGIN","is_default":"yes"}]}`, "valid_types[0].is_default: must be a boolean"},
		{"PUT", env + "/redirect_urls", `{"valid_types":[],"do_not_promote_defaults":1}`, "do_not_promote_defaults: must be a boolean"},
		{"PUT", loki, `{}`, "destination_config: field is required"},
		{"PUT", loki, `{"destination_config":[]}`, "destination_config: must be an object, not array"},
		{"PUT", loki, datadogBody, "destination_config.grafana_loki: field is required"},
		{"PUT", datadog, lokiBody, "destination_config.datadog: field is required"},
		{"PUT", datadog, `{"destination_config":{"datadog":{"api_key":"k","site":"MARS"}}}`, "destination_config.datadog.site"},
		{"PUT", datadog, `{"destination_config":{"datadog":{"site":"US"}}}`, "destination_config.datadog.api_key: field is required"},
		{"PUT", datadog, `{"destination_config":{"datadog":{"api_key":"k","site":"US"},"grafana_loki":{}}}`, "destination_config.grafana_loki: unknown field"},
		{"PUT", datadog, `{"destination_config":{"datadog":{"api_key":"k","site":"US","tags":[]}}}`, "destination_config.datadog.tags: unknown field"},
		{"POST", "/v1/projects", `{"project_name":"x"}`, "vertical: field is required"},
		{"POST", "/v1/projects", `{"project_name":"x","vertical":"B2C"}`, "vertical: must be one of"},
		{"GET", proj, `{}`, "takes no body"},
		{"DELETE", env + "/secrets/x", `{}`, "takes no body"},
	} {
		a.fails(a.call(c.method, c.path, c.body), 400, "bad_request", c.says)
	}
	for _, h := range []string{"https://x.example", "x.example/loki", "x.example:443", "-x", "a b", "x..y", "10.0.0.1:80", "127.0.0.1:0x", "u@localhost", "127.0.0.1:99999"} {
		body := `{"destination_config":{"grafana_loki":{"hostname":"` + h + `","username":"u","password":"p"}}}`
		a.fails(a.call("PUT", loki, body), 400, "bad_request", "destination_config.grafana_loki.hostname")
	}
	a.fails(a.call("PATCH", proj, `{"name":"`+strings.Repeat("x", maxBody)+`"}`), 413, "request_too_large")
	req := a.request("PATCH", proj, `{"name":"x"}`)
	req.Header.Set("Content-Type", "text/plain")
	r, err := a.do(req)
	require.NoError(t, err)
	a.fails(r, 415, "unsupported_media_type")
}

func TestDeletesAndDefaults(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	e := a.sim.Environments()[0]
	secret, token, login := env+"/secrets/"+e.Secrets[0], env+"/public_tokens/"+e.PublicTokens[0], proj+"/default_email_templates/LOGIN"
	for _, path := range []string{secret, token, login} {
		assert.Equal(t, 200, a.call("DELETE", path, "").status)
	}
	a.fails(a.call("DELETE", secret, ""), 404, "secret_not_found")
	a.fails(a.call("DELETE", token, ""), 404, "public_token_not_found")
	a.fails(a.call("DELETE", env+"/public_tokens/x", ""), 400, "bad_request", "public_token")
	a.fails(a.call("DELETE", login, ""), 404, "default_email_template_not_found")
	a.fails(a.call("GET", login, ""), 404, "default_email_template_not_found")
	assert.NotContains(t, a.sim.Environments()[0].Secrets, e.Secrets[0])
}

func TestUpdatesStay(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	a.call("PATCH", proj, `{"name":"Ünïcode <b>"}`)
	p, ok := a.call("GET", proj, "").body["project"].(map[string]any)
	require.True(t, ok)
	assert.Equal(t, "Ünïcode <b>", p["name"])
	r := a.call("POST", "/v1/projects", `{"project_name":"Acme Portal","vertical":"ALL"}`)
	p, ok = r.body["project"].(map[string]any)
	require.True(t, ok)
	assert.Equal(t, "acme-portal-2", p["project_slug"])
	assert.Equal(t, 200, a.call("GET", "/pwa/v3/projects/acme-portal-2/environments/test/rbac_policy", "").status)
}

func TestRedirectDefaults(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	e := a.sim.projects[0].environments[0]
	put := func(body string) {
		assert.Equal(t, 200, a.call("PUT", env+"/redirect_urls", body).status)
	}
	put(`{"valid_types":[{"type":"SIGNUP","is_default":true}],"do_not_promote_defaults":true}`)
	assert.Equal(t, validType{false, "LOGIN"}, e.redirects[2].ValidTypes[0], "not promoted")
	put(`{"valid_types":[{"type":"LOGIN","is_default":true}]}`)
	assert.Equal(t, []validType{{false, "LOGIN"}, {true, "SIGNUP"}}, e.redirects[2].ValidTypes, "promoted for SIGNUP alone")
	a.fails(a.call("PUT", env+"/redirect_urls?url=https://other.example", `{"valid_types":[]}`), 404, "redirect_url_not_found")
}

func TestSecretsAreMaskedOnRead(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	config := func(r reply) map[string]any {
		c, ok := r.body["event_log_streaming_config"].(map[string]any)
		require.True(t, ok, "%v", r.body)
		return c
	}
	loki, datadog := env+"/event_log_streaming/GRAFANA_LOKI", env+"/event_log_streaming/DATADOG"
	a.fails(a.call("GET", loki, ""), 404, "event_log_streaming_config_not_found")
	written := config(a.call("PUT", loki, lokiBody))
	assert.Equal(t, map[string]any{"grafana_loki": map[string]any{
		"hostname": "logs.example.com", "username": "u", "password": "pass-word-1234",
	}}, written["destination_config"])
	assert.Equal(t, "ACTIVE", written["streaming_status"])
	assert.Equal(t, map[string]any{"grafana_loki": map[string]any{
		"hostname": "logs.example.com", "username": "u", "password_last_four": "1234",
	}}, config(a.call("GET", loki, ""))["destination_config"])
	assert.Equal(t, map[string]any{"datadog": map[string]any{"api_key": "0123456789abcdef", "site": "US"}},
		config(a.call("PUT", datadog, datadogBody))["destination_config"])
	assert.Equal(t, map[string]any{"datadog": map[string]any{"api_key_last_four": "cdef", "site": "US"}},
		config(a.call("GET", datadog, ""))["destination_config"])
	a.fails(a.call("GET", loki, ""), 404, "event_log_streaming_config_not_found")
	require.NoError(t, a.sim.SetStreamingStatus("acme-portal", "production", "PENDING"))
	assert.Equal(t, "PENDING", config(a.call("GET", datadog, ""))["streaming_status"])
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{RateLimit: 0.5})
	assert.Equal(t, 200, a.call("GET", proj, "").status)
	r := a.call("GET", proj, "")
	a.fails(r, 429, "too_many_requests", "Too many requests have been made.")
	assert.Contains(t, []string{"1", "2"}, r.header.Get("Retry-After"))
	a.sim.SetRateLimit(0)
	for range 20 {
		assert.Equal(t, 200, a.call("GET", proj, "").status)
	}
}

func TestRequestIDsAreUnique(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{})
	require.NoError(t, err)
	seen := map[string]bool{}
	for range 100_000 {
		id := sim.nextRequestID()
		require.False(t, seen[id])
		seen[id] = true
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Seed: 5})
	tally := func(f Faults, n int) map[int]int {
		require.NoError(t, a.sim.SetFaults(f))
		got := map[int]int{}
		for range n {
			r, err := a.do(a.request("GET", proj, ""))
			if err != nil {
				got[0]++
				continue
			}
			if r.status >= 400 {
				assert.Equal(t, "7", r.header.Get("Retry-After"))
			}
			got[r.status]++
		}
		return got
	}
	got := tally(Faults{ErrorRates: map[int]float64{429: 0.2, 500: 0.2, 503: 0.1}, RetryAfter: 7 * time.Second}, 400)
	assert.InDelta(t, 80, got[429], 35)
	assert.InDelta(t, 80, got[500], 35)
	assert.InDelta(t, 40, got[503], 30)
	assert.Len(t, got, 4)
	assert.Equal(t, map[int]int{0: 5}, tally(Faults{Outage: true}, 5))
	got = tally(Faults{CutRate: 0.5}, 100)
	assert.InDelta(t, 50, got[0], 20)
	assert.Equal(t, map[int]int{200: 5}, tally(Faults{Outage: true, PathContains: "rbac_policy"}, 5))
	start := time.Now()
	tally(Faults{Latency: 30 * time.Millisecond, LatencyJitter: time.Millisecond}, 2)
	assert.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
	for _, bad := range []Faults{{CutRate: 2}, {ErrorRates: map[int]float64{200: 0.1}}, {ErrorRates: map[int]float64{500: 0.6, 503: 0.6}}, {Latency: -1}} {
		require.Error(t, a.sim.SetFaults(bad))
	}
}

// Some cuts come after the operation took effect: a client cannot tell.
func TestCutsHaveTakenEffectOrNot(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	require.NoError(t, a.sim.SetFaults(Faults{CutRate: 1}))
	type outcome struct {
		effect bool
		status int
	}
	outcomes := map[outcome]int{}
	for i := range 60 {
		name := "name " + itoa(i)
		r, err := a.do(a.request(http.MethodPatch, proj, `{"name":"`+name+`"}`))
		require.Error(t, err)
		a.sim.mu.Lock()
		outcomes[outcome{a.sim.projects[0].Name == name, r.status}]++
		a.sim.mu.Unlock()
	}
	assert.Len(t, outcomes, 3)
	for _, o := range []outcome{{false, 0}, {true, 0}, {true, 200}} {
		assert.Positive(t, outcomes[o], "%v", o)
	}
}
