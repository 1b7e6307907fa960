package management_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

const brand = "maker" // the RBAC names' prefix on the simulated wire

// walk is a client of a simulator, with a record of the requests.
type walk struct {
	*testing.T
	*management.Client
	sim *workspacesim.Simulator
	env workspacesim.Environment

	mu       sync.Mutex
	requests []string
}

func newWalk(t *testing.T, key secret.Text) *walk {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{RBACPrefix: brand, NewConfigStatus: "PENDING"})
	require.NoError(t, err)
	w := &walk{T: t, sim: sim, env: sim.Environments()[0]}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.requests = append(w.requests, r.Method+" "+r.URL.EscapedPath())
		w.mu.Unlock()
		sim.Handler().ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { srv.Close(); sim.Stop() })
	w.Client, err = management.New(management.Options{
		BaseURL: srv.URL, KeyID: workspacesim.DemoKeyID, Secret: key, RequestsPerSecond: 1000,
	})
	require.NoError(t, err)
	return w
}

// took checks the parts common to all answers.
func took(w *walk, r management.Receipt, err error) {
	w.Helper()
	require.NoError(w, err)
	assert.NotEmpty(w, r.RequestID)
	assert.GreaterOrEqual(w, r.StatusCode, 200)
}

// setting reads a setting of the environment, which must not be empty.
func (w *walk) setting(s kinds.Setting, one string) string {
	w.Helper()
	a, err := w.Setting(w.Context(), s, w.env.Project, w.env.Environment, one)
	took(w, a.Receipt, err)
	assert.Greater(w, len(a.Raw), len("[]"))
	return string(a.Raw)
}

func TestAllOperationsAgainstTheSimulator(t *testing.T) {
	t.Parallel()
	w := newWalk(t, secret.New(workspacesim.DemoSecret))
	w.projects()
	w.templates()
	w.environment()
	w.streaming()
	assert.Len(t, w.requests, 20, "each call is one request")
	kinds := map[string]bool{}
	for _, r := range w.requests {
		kinds[w.operation(r)] = true
	}
	assert.Len(t, kinds, 15, "%v", kinds)
}

// lastParameter matches a parameter's value at the end of a path.
var lastParameter = regexp.MustCompile(`/(secrets|public_tokens|default_email_templates|event_log_streaming)/[^/]+$`)

// operation removes the parameters' values from a request.
func (w *walk) operation(request string) string {
	request = lastParameter.ReplaceAllString(request, "/$1/:x")
	return strings.NewReplacer(w.env.Project, ":p", "/environments/"+w.env.Environment, "/:e").Replace(request)
}

func (w *walk) projects() {
	ctx := w.Context()
	assert.Contains(w, w.setting(kinds.Project, ""), `"project_slug":"`+w.env.Project+`"`)
	a, err := w.Change(ctx, management.RenameProject, map[string]string{"name": "Renamed"}, w.env.Project)
	took(w, a.Receipt, err)
	assert.Contains(w, string(a.Raw), `"name":"Renamed"`)
	a, err = w.CreateProject(ctx, "Fresh One", "B2B")
	took(w, a.Receipt, err)
	assert.Contains(w, string(a.Raw), `"project_slug":"`)
	_, err = w.CreateProject(ctx, "", "")
	var api *management.APIError
	require.ErrorAs(w, err, &api)
	assert.Equal(w, 400, api.Status)
}

func (w *walk) templates() {
	ctx := w.Context()
	w.setting(kinds.EmailTemplates, "")
	w.setting(kinds.DefaultEmailTemplates, "LOGIN")
	r, err := w.Change(ctx, management.UnsetDefaultEmailTemplate, nil, w.env.Project, "LOGIN")
	took(w, r.Receipt, err)
	_, err = w.Setting(ctx, kinds.DefaultEmailTemplates, w.env.Project, "", "LOGIN")
	assert.True(w, management.IsNotFound(err), "%v", err)
}

func (w *walk) environment() {
	ctx, p, e := w.Context(), w.env.Project, w.env.Environment
	assert.Contains(w, w.setting(kinds.RBACPolicy, ""), brand+"_resources")
	w.setting(kinds.TrustedTokenProfiles, "")
	assert.Contains(w, w.setting(kinds.PasswordStrength, ""), "validation_policy")
	w.setting(kinds.SMSCountryCodes, "")
	redirect, err := w.Change(ctx, management.UpdateRedirectURL, management.RedirectURLUpdate{
		ValidTypes: []management.RedirectType{{Type: "LOGIN", IsDefault: true}},
	}, p, e, w.env.RedirectURLs[0])
	took(w, redirect.Receipt, err)
	assert.Contains(w, string(redirect.Raw), w.env.RedirectURLs[0])
	r, err := w.Change(ctx, management.DeleteSecret, nil, p, e, w.env.Secrets[0])
	took(w, r.Receipt, err)
	_, err = w.Change(ctx, management.DeleteSecret, nil, p, e, w.env.Secrets[0]+"/../x")
	assert.True(w, management.IsNotFound(err), "%v", err)
	r, err = w.Change(ctx, management.DeletePublicToken, nil, p, e, w.env.PublicTokens[0])
	took(w, r.Receipt, err)
}

func (w *walk) streaming() {
	const password = "loki-password-4321"
	ctx, p, e := w.Context(), w.env.Project, w.env.Environment
	_, err := w.EventLogStreaming(ctx, p, e, management.GrafanaLoki)
	assert.True(w, management.IsNotFound(err), "%v", err)
	set, err := w.SetEventLogStreaming(ctx, p, e, management.Shape{Type: management.GrafanaLoki, Hostname: "relay.example.com", Username: "u"}, secret.New(password))
	took(w, set.Receipt, err)
	assert.Equal(w, "relay.example.com", set.Hostname)
	assert.NotContains(w, string(set.Raw), password)
	read, err := w.EventLogStreaming(ctx, p, e, management.GrafanaLoki)
	took(w, read.Receipt, err)
	assert.Equal(w, "4321", read.LastFour)
	assert.Equal(w, management.StatusPending, read.Status)
	set, err = w.SetEventLogStreaming(ctx, p, e, management.Shape{Type: management.Datadog, Site: "US"}, secret.New("datadog-key-8765"))
	took(w, set.Receipt, err)
	assert.Equal(w, "US", set.Site)
}

func TestTheSimulatorsErrors(t *testing.T) {
	t.Parallel()
	w := newWalk(t, secret.New("not-the-right-secret"))
	_, err := w.Project(t.Context(), w.env.Project)
	var api *management.APIError
	require.ErrorAs(t, err, &api)
	assert.Equal(t, 401, api.Status)
	assert.Equal(t, "unauthorized_credentials", api.Type)
	assert.Equal(t, "Unauthorized credentials.", api.Message)
	assert.True(t, strings.HasSuffix(api.URL, "/api/errors/401"), api.URL)
	assert.NotEmpty(t, api.RequestID)
	assert.Len(t, w.requests, 2, "what is refused for its credentials is held against one other read, and not repeated")
}
