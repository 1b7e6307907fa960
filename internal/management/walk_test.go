package management_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/management"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
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
		BaseURL: srv.URL, KeyID: workspacesim.DemoKeyID, Secret: key, RBACPrefix: brand, RequestsPerSecond: 1000,
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

// whole checks for missing fields in the typed value: encoded again, it equals the raw
// resource.
func whole[T any](w *walk, a management.Answer[T], err error) T {
	w.Helper()
	took(w, a.Receipt, err)
	again, err := json.Marshal(a.Value)
	require.NoError(w, err)
	assert.JSONEq(w, strings.ReplaceAll(string(a.Raw), `"`+brand+"_", `"service_`), string(again))
	return a.Value
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
	a, err := w.Project(ctx, w.env.Project)
	p := whole(w, a, err)
	assert.Equal(w, w.env.Project, p.Slug)
	a, err = w.UpdateProject(ctx, w.env.Project, management.ProjectUpdate{Name: "Renamed"})
	assert.Equal(w, "Renamed", whole(w, a, err).Name)
	a, err = w.CreateProject(ctx, management.NewProject{Name: "Fresh One", Vertical: management.VerticalB2B})
	took(w, a.Receipt, err)
	assert.NotEmpty(w, a.Value.Slug)
	_, err = w.CreateProject(ctx, management.NewProject{})
	var api *management.APIError
	require.ErrorAs(w, err, &api)
	assert.Equal(w, 400, api.Status)
}

func (w *walk) templates() {
	ctx := w.Context()
	list, err := w.EmailTemplates(ctx, w.env.Project)
	require.NotEmpty(w, whole(w, list, err))
	set, err := w.DefaultEmailTemplate(ctx, w.env.Project, management.TemplateLogin)
	assert.NotEmpty(w, whole(w, set, err))
	r, err := w.UnsetDefaultEmailTemplate(ctx, w.env.Project, management.TemplateLogin)
	took(w, r, err)
	_, err = w.DefaultEmailTemplate(ctx, w.env.Project, management.TemplateLogin)
	assert.True(w, management.IsNotFound(err), "%v", err)
}

func (w *walk) environment() {
	ctx, p, e := w.Context(), w.env.Project, w.env.Environment
	policy, err := w.RBACPolicy(ctx, p, e)
	assert.NotEmpty(w, whole(w, policy, err).ServiceResources)
	assert.Contains(w, string(policy.Raw), brand+"_resources")
	profiles, err := w.TrustedTokenProfiles(ctx, p, e)
	assert.NotEmpty(w, whole(w, profiles, err))
	strength, err := w.PasswordStrengthConfig(ctx, p, e)
	assert.NotEmpty(w, whole(w, strength, err).ValidationPolicy)
	codes, err := w.SMSCountryCodes(ctx, p, e)
	assert.NotEmpty(w, whole(w, codes, err))
	redirect, err := w.UpdateRedirectURL(ctx, p, e, w.env.RedirectURLs[0], management.RedirectURLUpdate{
		ValidTypes: []management.RedirectType{{Type: management.RedirectLogin, IsDefault: true}},
	})
	assert.Equal(w, w.env.RedirectURLs[0], whole(w, redirect, err).URL)
	r, err := w.DeleteSecret(ctx, p, e, w.env.Secrets[0])
	took(w, r, err)
	_, err = w.DeleteSecret(ctx, p, e, w.env.Secrets[0]+"/../x")
	assert.True(w, management.IsNotFound(err), "%v", err)
	r, err = w.DeletePublicToken(ctx, p, e, w.env.PublicTokens[0])
	took(w, r, err)
}

func (w *walk) streaming() {
	const password = "loki-password-4321"
	ctx, p, e := w.Context(), w.env.Project, w.env.Environment
	_, err := w.EventLogStreaming(ctx, p, e, management.GrafanaLoki)
	assert.True(w, management.IsNotFound(err), "%v", err)
	set, err := w.SetEventLogStreaming(ctx, p, e, management.GrafanaLoki, management.DestinationConfig{
		GrafanaLoki: &management.GrafanaLokiDestination{Hostname: "relay.example.com", Username: "u", Password: secret.New(password)},
	})
	got := whole(w, set, err)
	assert.True(w, got.DestinationConfig.GrafanaLoki.Password.Equal(password))
	assert.NotContains(w, string(set.Raw), password)
	read, err := w.EventLogStreaming(ctx, p, e, management.GrafanaLoki)
	got = whole(w, read, err)
	assert.Equal(w, "4321", got.DestinationConfig.GrafanaLoki.PasswordLastFour)
	assert.Equal(w, management.StatusPending, got.Status)
	set, err = w.SetEventLogStreaming(ctx, p, e, management.Datadog, management.DestinationConfig{
		Datadog: &management.DatadogDestination{Site: "US", APIKey: secret.New("datadog-key-8765")},
	})
	assert.Equal(w, "US", whole(w, set, err).DestinationConfig.Datadog.Site)
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
