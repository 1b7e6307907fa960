package workspacesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unordered is v with every list sorted by its items' JSON: the view of a comparison with
// lists as sets.
func unordered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = unordered(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unordered(v[i])
		}
		slices.SortFunc(v, func(a, b any) int { return bytes.Compare(mustJSON(a), mustJSON(b)) })
	}
	return v
}

func canonical(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	return string(mustJSON(unordered(v)))
}

func TestEveryChangeIsANewState(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{Seed: 2, Projects: 1})
	require.NoError(t, err)
	const changes = 60
	for _, resource := range Resources() {
		seen, last := map[string]bool{}, ""
		for range changes {
			c, err := sim.ChangeSetting("acme-portal", "test", resource)
			require.NoError(t, err)
			before, after := canonical(t, c.Before), canonical(t, c.After)
			if last == "" {
				seen[before] = true
			} else {
				require.Equal(t, last, before, resource)
			}
			require.False(t, seen[after], "%s: %s came back to %s", resource, c.Detail, after)
			require.NotEmpty(t, c.Detail)
			seen[after], last = true, after
			assert.Equal(t, ofProject(resource), c.Environment == "")
		}
	}
	assert.Len(t, sim.Changes(), changes*len(Resources()))
}

// The API shows each change.
func TestChangesAreSeenThroughTheAPI(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Seed: 3})
	where := map[string]struct{ path, field string }{
		ResourceProject:              {"", "project"},
		ResourceEmailTemplates:       {"/email_templates", "email_templates"},
		ResourceRBACPolicy:           {"/environments/%s/rbac_policy", "policy"},
		ResourceTrustedTokenProfiles: {"/environments/%s/trusted_token_profiles", "profiles"},
		ResourcePasswordStrength:     {"/environments/%s/password_strength_config", "password_strength_config"},
		ResourceSMSCountryCodes:      {"/environments/%s/allowed_country_codes/sms", "country_codes"},
	}
	met := map[string]bool{}
	for range 150 {
		c, err := a.sim.ChangeSomething()
		require.NoError(t, err)
		met[c.Resource] = true
		w, ok := where[c.Resource]
		if !ok {
			a.seesDefaults(c)
			continue
		}
		path := "/pwa/v3/projects/" + c.Project + w.path
		if c.Environment != "" {
			path = fmt.Sprintf(path, c.Environment)
		}
		assert.JSONEq(t, string(c.After), string(mustJSON(a.call("GET", path, "").body[w.field])))
	}
	assert.Len(t, met, len(Resources()))
}

func (a *api) seesDefaults(c Change) {
	a.t.Helper()
	var after map[string]string
	require.NoError(a.t, json.Unmarshal(c.After, &after))
	for _, kind := range emailTemplateTypes {
		r := a.call("GET", "/pwa/v3/projects/"+c.Project+"/default_email_templates/"+kind, "")
		if after[kind] == "" {
			assert.Equal(a.t, 404, r.status)
			continue
		}
		assert.Equal(a.t, after[kind], r.body["template_id"])
	}
}

func TestChangesOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{})
	require.NoError(t, err)
	for _, c := range [][3]string{
		{"nobody", "test", ResourceProject}, {"acme-portal", "x", ResourceRBACPolicy}, {"acme-portal", "test", "x"},
	} {
		_, err := sim.ChangeSetting(c[0], c[1], c[2])
		require.Error(t, err)
	}
	_, err = sim.ChangeSetting("acme-portal", "", ResourceProject)
	require.NoError(t, err)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{KeyID: "only"},
		{Projects: -1},
		{Run: "a-b"},
		{Rate: -1},
		{RateLimit: -1},
		{EventBytes: -1},
		{PushEvents: -1},
		{PushTimeout: -1},
		{GzipShare: 2},
		{RepushShare: -1},
	} {
		_, err := New(o)
		assert.Error(t, err, "%+v", o)
	}
}

// admin calls the admin address.
func admin(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	b, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.Code, string(b)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	h := a.sim.Admin()
	require.Equal(t, 200, a.call("PUT", env+"/event_log_streaming/DATADOG", datadogBody).status)
	one := `"project_slug":"acme-portal","environment_slug":"production"`
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/_sim/environments", "", 200, `"environment_slug":"production"`},
		{"GET", "/_sim/counts", "", 200, `"acknowledged":0`},
		{"GET", "/_sim/ledgers", "", 200, `"prefix":"event-log-acme-portal.production-0-"`},
		{"POST", "/_sim/changes", "", 200, `"number":1`},
		{"POST", "/_sim/changes", `{` + one + `,"resource":"rbac_policy"}`, 200, `"resource":"rbac_policy"`},
		{"POST", "/_sim/changes", `{"resource":"rbac_policy"}`, 400, "no project"},
		{"POST", "/_sim/changes", `{"x":1}`, 400, "unknown field"},
		{"GET", "/_sim/changes", "", 200, `"number":2`},
		{"POST", "/_sim/faults", `{"error_rates":{"500":1},"latency":"1ms"}`, 200, `"done":true`},
		{"POST", "/_sim/faults", `{"cut_rate":3}`, 400, "cut_rate"},
		{"POST", "/_sim/faults", `{"latency":"x"}`, 400, "duration"},
		{"GET", "/_sim/faults", "", 200, `"error_rates":{"500":1},"retry_after":"0s","latency":"1ms"`},
		{"POST", "/_sim/rate", `{` + one + `,"rate":5}`, 200, "done"},
		{"POST", "/_sim/rate", `{"rate":-5}`, 400, "rate"},
		{"POST", "/_sim/rate_limit", `{"rate":5}`, 200, "done"},
		{"POST", "/_sim/streaming_status", `{` + one + `,"status":"DISABLED"}`, 200, "done"},
		{"POST", "/_sim/streaming_status", `{"status":"DISABLED"}`, 400, "there is no"},
		{"POST", "/_sim/pause", "", 200, "generated"},
		{"POST", "/_sim/resume", "", 200, "generated"},
		{"GET", "/_sim/pause", "", 405, ""},
		{"GET", "/pwa/v3/projects/acme-portal", "", 404, ""},
	} {
		status, body := admin(t, h, c.method, c.path, c.body)
		assert.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, body)
		assert.Contains(t, body, c.says, c.path)
	}
	assert.Equal(t, 500, a.call("GET", proj, "").status)
	a.fails(a.call("GET", "/_sim/counts", ""), 500, "internal_server_error")
}
