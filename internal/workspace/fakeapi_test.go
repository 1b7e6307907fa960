package workspace

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// fakeAPI serves the API over plain values, without a network: a test can fake time.
type fakeAPI struct {
	mu    sync.Mutex
	state map[Resource]string
	fail  map[Resource]badAnswer
	reads map[Resource]int
	asked int
	told  int // of the asked ones, by since
	all   int // a status of every answer
}

// badAnswer is an answer other than the resource: a status with an error_type, or a body
// of a stranger.
type badAnswer struct {
	status     int
	kind, body string
	once       bool // the next read succeeds
}

func newWorkspace() *fakeAPI {
	w := &fakeAPI{state: map[Resource]string{}, fail: map[Resource]badAnswer{}, reads: map[Resource]int{}}
	w.set(defaultOf("LOGIN"), `"t1"`)
	w.fill("p", "live")
	w.fill("p", "test")
	return w
}

// fill gives an environment its settings, and the project its own.
func (w *fakeAPI) fill(project, env string) {
	of := func(kind Kind) Resource { return Resource{Kind: kind, Project: project, Environment: env} }
	w.set(of(RBACPolicy), `{"custom_roles":[],"custom_resources":[],"custom_scopes":[]}`)
	w.set(of(TrustedTokenProfiles), `[]`)
	w.set(of(PasswordStrength), `{"validation_policy":"ZXCVBN","luds_min_password_length":null}`)
	w.set(of(SMSCountryCodes), `["US","CA"]`)
	w.set(Resource{Kind: Project, Project: project}, fmt.Sprintf(`{"project_slug":%q,"name":"Acme","vertical":"B2B"}`, project))
	w.set(Resource{Kind: EmailTemplates, Project: project}, `[{"template_id":"t1","name":"Welcome"}]`)
}

// refuse answers every request with a status; 0 answers as usual again.
func (w *fakeAPI) refuse(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = status
}

// since counts the requests since the last call.
func (w *fakeAPI) since() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.asked - w.told
	w.told = w.asked
	return n
}

func ofProject(kind Kind) Resource { return Resource{Kind: kind, Project: "p"} }

func defaultOf(templateType string) Resource {
	return Resource{Kind: DefaultEmailTemplates, Project: "p", TemplateType: templateType}
}

func at(kind Kind, env string) Resource {
	return Resource{Kind: kind, Project: "p", Environment: env}
}

func (w *fakeAPI) set(r Resource, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state[r] = state
}

// setFault makes reads of r fail; the zero badAnswer heals them.
func (w *fakeAPI) setFault(r Resource, f badAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[r] = f
}

// remove removes an environment.
func (w *fakeAPI) remove(env string) {
	for _, kind := range environmentKinds() {
		w.setFault(at(kind, env), badAnswer{status: 404, kind: "environment_not_found"})
	}
}

// restore brings it back.
func (w *fakeAPI) restore(env string) {
	for _, kind := range environmentKinds() {
		w.setFault(at(kind, env), badAnswer{})
	}
}

func (w *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, field := resourceOf(req.URL.Path)
	w.reads[r]++
	w.asked++
	status, body := w.answer(r, field)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (w *fakeAPI) answer(r Resource, field string) (int, string) {
	f, failing := w.fail[r]
	state, ok := w.state[r]
	if f.once {
		delete(w.fail, r)
	}
	switch {
	case w.all != 0:
		f = badAnswer{status: w.all, kind: "unauthorized_credentials"}
	case f.body != "":
		return f.status, f.body
	case !failing || f == (badAnswer{}):
		if ok {
			return 200, fmt.Sprintf(`{"request_id":"r-%d","status_code":200,%q:%s}`, w.asked, field, state)
		}
		f = badAnswer{status: 404, kind: "not_found"}
	}
	return f.status, fmt.Sprintf(`{"request_id":"r-%d","status_code":%d,"error_type":%q}`, w.asked, f.status, f.kind)
}

// resourceOf finds the resource of a path, and its field in the answer.
func resourceOf(path string) (Resource, string) {
	parts := append(strings.Split(path, "/"), "", "", "", "")
	r := Resource{Project: parts[4]}
	switch parts[5] {
	case "":
		r.Kind = Project
		return r, "project"
	case "email_templates":
		r.Kind = EmailTemplates
		return r, "email_templates"
	case "default_email_templates":
		r.Kind, r.TemplateType = DefaultEmailTemplates, parts[6]
		return r, "template_id"
	}
	r.Kind, r.Environment = parts[7], parts[6]
	if parts[7] == "allowed_country_codes" {
		r.Kind = SMSCountryCodes
	}
	fields := map[Kind]string{RBACPolicy: "policy", TrustedTokenProfiles: "profiles", SMSCountryCodes: "country_codes"}
	return r, cmp.Or(fields[r.Kind], r.Kind)
}

func (w *fakeAPI) client(t testing.TB) *management.Client {
	t.Helper()
	return w.clientWith(t, 10000)
}

func (w *fakeAPI) clientWith(t testing.TB, perSecond float64) *management.Client {
	t.Helper()
	c, err := management.New(management.Options{
		BaseURL: "https://api.example.com", KeyID: "key", Secret: secret.New("s3cret-s3cret"),
		RequestsPerSecond: perSecond, MaxAttempts: 1, HTTPClient: &http.Client{Transport: w},
	})
	require.NoError(t, err)
	return c
}

// options watch one or two environments of the project p.
func (w *fakeAPI) options(t testing.TB, trail Trail, envs ...string) WatcherOptions {
	t.Helper()
	o := WatcherOptions{Client: w.client(t), Trail: trail, Presence: NewPresence(trail, slog.New(slog.DiscardHandler))}
	for _, env := range envs {
		o.Environments = append(o.Environments, config.Environment{Project: "p", Environment: env})
	}
	return o
}

func newWatcher(t testing.TB, w *fakeAPI, trail Trail) *Watcher {
	t.Helper()
	return NewWatcher(w.options(t, trail, "live", "test", "live"))
}
