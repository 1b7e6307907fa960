package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const destinationKey = "a-destination-key-of-some-length"

var ada = Person{User: "ada", Host: "laptop"}

// scene is a desk before the simulator, over a real trail.
type scene struct {
	*Desk
	t     *testing.T
	trail *audit.Trail
	env   workspacesim.Environment
	// writes counts the API's requests except GET. fault, where set, answers them
	// instead; the call has had its effect then if done is set.
	writes atomic.Int32
	fault  atomic.Pointer[fault]
	// sorted has the API write its answers anew: with the members sorted, and on several lines.
	sorted atomic.Bool
}

type fault struct {
	status int // 0 cuts the connection
	done   bool
}

func newScene(t *testing.T, controlled ...config.Environment) *scene {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	s := &scene{t: t, env: sim.Environments()[0]}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { s.serve(sim, rw, r) }))
	t.Cleanup(func() { api.Close(); sim.Stop() })
	client, err := management.New(management.Options{
		BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000, MaxAttempts: 1,
	})
	require.NoError(t, err)
	s.trail = trailtest.New(t)
	s.Desk = New(client, s.trail, controlled, nil)
	return s
}

func (s *scene) serve(sim *workspacesim.Simulator, rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		answer, body := httptest.NewRecorder(), map[string]any{}
		sim.Handler().ServeHTTP(answer, r)
		if text := answer.Body.Bytes(); s.sorted.Load() && json.Unmarshal(text, &body) == nil {
			answer.Body.Reset()
			text, _ = json.MarshalIndent(body, "", "  ")
			_, _ = answer.Body.Write(text)
		}
		rw.WriteHeader(answer.Code)
		_, _ = rw.Write(answer.Body.Bytes())
		return
	}
	s.writes.Add(1)
	f := s.fault.Load()
	if f == nil {
		sim.Handler().ServeHTTP(rw, r)
		return
	}
	if f.done {
		sim.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	if f.status == 0 {
		panic(http.ErrAbortHandler)
	}
	rw.WriteHeader(f.status)
}

func (s *scene) request(operation string, arguments ...string) Request {
	r := Request{Operation: operation, Arguments: map[string]string{}, Person: ada, Reason: "CHG-1"}
	if scope := operations[operation].Scope; scope != OfWorkspace {
		r.Project = s.env.Project
		if scope == OfEnvironment {
			r.Environment = s.env.Environment
		}
	}
	for i := 0; i < len(arguments); i += 2 {
		r.Arguments[arguments[i]] = arguments[i+1]
	}
	return r
}

// do plans and performs, as the command does.
func (s *scene) do(r Request) (Outcome, error) {
	s.t.Helper()
	p, err := s.Plan(s.t.Context(), r)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, p.Changes)
	r.Seen = p.Seen
	return s.Do(s.t.Context(), r)
}

// entries are the details of all entries, oldest first.
func (s *scene) entries() (details []action, kinds []string) {
	s.t.Helper()
	for _, e := range trailtest.Entries(s.t, s.trail) {
		var a action
		require.NoError(s.t, json.Unmarshal(e.Detail, &a))
		details, kinds = append(details, a), append(kinds, e.Type)
		require.Equal(s.t, SubjectOf(a.Operation), e.Subject)
		record, err := json.Marshal(e)
		require.NoError(s.t, err)
		require.NotContains(s.t, string(record), destinationKey)
	}
	return details, kinds
}

// Every operation of the API is here: fourteen, and the creation of a project.
func TestEachOperation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, r := range []Request{
		s.request("project.get"), s.request("rbac.get"), s.request("templates.list"), s.request("templates.default.get", "type", "LOGIN"),
		s.request("token_profiles.list"), s.request("password_config.get"), s.request("country_codes.get"),
	} {
		out, err := s.Read(t.Context(), r)
		require.NoError(t, err, r.Operation)
		assert.True(t, json.Valid(out.Result), r.Operation)
		assert.NotEmpty(t, out.RequestID, r.Operation)
	}
	_, kinds := s.entries()
	require.Empty(t, kinds, "reading leaves no entry")

	loki := s.request(streamingSet, "type", "GRAFANA_LOKI", "hostname", "loki.example.com", "username", "u")
	loki.Secret = secret.New(destinationKey)
	changes := []Request{
		s.request("project.rename", "name", "Another"), s.request("project.create", "name", "New", "vertical", "B2B"),
		s.request("redirect_urls.set_types", "url", s.env.RedirectURLs[0], "types", "LOGIN, SIGNUP", "default_types", "INVITE", "do_not_promote_defaults", "true"),
		s.request("templates.default.unset", "type", "LOGIN"), s.request("secret.delete", "secret_id", s.env.Secrets[0]),
		s.request("public_token.delete", "public_token", s.env.PublicTokens[0]), loki,
	}
	require.Len(t, operations, len(changes)+8, "streaming.get is below")
	for i, r := range changes {
		out, err := s.do(r)
		require.NoError(t, err, r.Operation)
		require.NotContains(t, string(out.Result), destinationKey)
		details, kinds := s.entries()
		require.Equal(t, []string{TypeIntended, TypeEnded}, kinds[2*i:], r.Operation)
		want := action{
			Action: out.Action, Operation: r.Operation, Arguments: r.Arguments, LastFour: r.Secret.LastFour(), Person: ada, Reason: "CHG-1", Relay: s.host,
		}
		for k, end := range []string{": intended, because CHG-1", ": done, because CHG-1"} {
			told := &details[2*i+k]
			require.True(t, strings.HasPrefix(told.Summary, ada.User+" on "+ada.Host+": "+r.Operation), told.Summary)
			require.True(t, strings.HasSuffix(told.Summary, end), told.Summary)
			for name, value := range r.Arguments {
				require.Contains(t, told.Summary, ", "+name+" `"+value+"`", "a sentence says what was done, and to what")
			}
			judged := []any{meaning.Low, meaning.Neutral}
			switch {
			case k == 0: // the end tells what it means
			case strings.HasSuffix(r.Operation, ".delete"):
				judged = []any{meaning.High, meaning.Stronger}
			case r.Operation == "redirect_urls.set_types":
				judged = []any{meaning.High, meaning.Unknown}
			}
			require.Equal(t, judged, []any{told.Severity, told.Direction}, r.Operation)
			told.Summary, told.Severity, told.Direction = "", "", ""
		}
		want.Begun = details[2*i].Begun
		require.WithinRange(t, want.Begun, time.Now().Add(-time.Hour), time.Now())
		require.Equal(t, want, details[2*i])
		want.Outcome, want.RequestID, want.Status = OutcomeDone, out.RequestID, http.StatusOK
		require.NotEmpty(t, out.RequestID)
		require.Equal(t, want, details[2*i+1])
	}
	out, err := s.Read(t.Context(), s.request("streaming.get", "type", "GRAFANA_LOKI"))
	require.NoError(t, err)
	require.Contains(t, string(out.Result), "loki.example.com")
	out, err = s.Read(t.Context(), s.request("project.get"))
	require.NoError(t, err)
	require.Contains(t, string(out.Result), "Another")
}

func TestThePlanSaysWhatWillChange(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p, err := s.Plan(t.Context(), s.request("project.rename", "name", "A\x1b[2J"))
	require.NoError(t, err)
	require.Len(t, p.Changes, 1)
	require.Contains(t, p.Changes[0], `"A\x1b[2J"`, "a hostile name is quoted")
	require.Contains(t, p.Changes[0], member(p.Before, "name")+" → ")
	require.Zero(t, s.writes.Load())

	r := s.request("project.rename", "name", "Mine")
	r.Seen = p.Seen
	_, err = s.do(s.request("project.rename", "name", "Theirs"))
	require.NoError(t, err)
	_, err = s.Do(t.Context(), r)
	require.ErrorIs(t, err, ErrChanged, "somebody was quicker than the answer to the question")
	require.EqualValues(t, 1, s.writes.Load())

	p, err = s.Plan(t.Context(), r)
	require.NoError(t, err)
	r.Seen = p.Seen
	s.sorted.Store(true)
	_, err = s.Do(t.Context(), r)
	require.NoError(t, err, "a state that the API writes in another order is the same one")
}

func TestWrongRequests(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	streaming := s.request(streamingSet, "type", "DATADOG", "hostname", "x")
	streaming.Secret = secret.New("k")
	noProject := s.request("project.rename", "name", "x")
	noProject.Project = ""
	for want, r := range map[string]Request{
		"there is no operation":         {Operation: "project.explode"},
		"it needs a project":            noProject,
		`it needs the argument "name"`:  s.request("project.rename"),
		`it takes no argument "colour"`: s.request("project.rename", "name", "x", "colour", "red"),
		"secret given: false":           s.request(streamingSet, "type", "DATADOG", "site", "US"),
		"DATADOG takes a site":          streaming,
		"only reads":                    s.request("rbac.get"),
	} {
		_, err := s.Do(t.Context(), r)
		require.ErrorIs(t, err, ErrUsage)
		require.ErrorContains(t, err, want)
	}
	_, err := s.Read(t.Context(), s.request("project.rename", "name", "x"))
	require.ErrorIs(t, err, ErrUsage)
	_, kinds := s.entries()
	require.Empty(t, kinds)
	require.Zero(t, s.writes.Load())
}

func TestAControlledStreamIsRefused(t *testing.T) {
	t.Parallel()
	probe := newScene(t)
	s := newScene(t, config.Environment{Project: probe.env.Project, Environment: probe.env.Environment, Stream: &config.Stream{}})
	r := s.request(streamingSet, "type", "DATADOG", "site", "US")
	r.Secret = secret.New(destinationKey)
	_, err := s.Plan(t.Context(), r)
	require.ErrorContains(t, err, "sets the streaming config")

	for _, e := range []config.Environment{{Stream: &config.Stream{Observe: true}}, {Stream: &config.Stream{}, Mode: config.ModeObserve}} {
		e.Project, e.Environment = probe.env.Project, probe.env.Environment
		watched := newScene(t, e)
		r = watched.request(streamingSet, "type", "DATADOG", "site", "US")
		r.Secret = secret.New(destinationKey)
		_, err = watched.Plan(t.Context(), r)
		require.NoError(t, err, "the relay only watches this one")
	}
}

// The entries say no more than is known.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault
		want string
	}{
		"refused":                       {fault{status: 400}, OutcomeRefused},
		"a proxy's 404":                 {fault{status: 404}, OutcomeUnknown},
		"a fault of the API":            {fault{status: 500}, OutcomeUnknown},
		"a lost answer":                 {fault{done: true}, OutcomeUnknown},
		"an answer that nobody expects": {fault{status: 200, done: true}, OutcomeDone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.fault.Store(&c.fault)
			out, err := s.do(s.request("secret.delete", "secret_id", s.env.Secrets[0]))
			details, kinds := s.entries()
			require.Equal(t, []string{TypeIntended, TypeEnded}, kinds)
			require.Equal(t, c.want, details[1].Outcome)
			require.Equal(t, out.Action, details[1].Action)
			if c.want == OutcomeDone {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "the outcome of action "+out.Action)
			require.NotEmpty(t, details[1].Error)
		})
	}
}

// What is known to have had no effect is refused, and not unknown.
func TestWhatWasNotDoneIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, r := range map[string]Request{
		"no longer there": s.request("secret.delete", "secret_id", "secret-of-nobody"),
		"never sent":      s.request("secret.delete", "secret_id", ".."),
	} {
		out, err := s.do(r)
		require.Error(t, err, name)
		details, _ := s.entries()
		last := details[len(details)-1]
		assert.Equal(t, out.Action, last.Action, name)
		assert.Equal(t, OutcomeRefused, last.Outcome, name)
	}
}

// brokenTrail cannot be written.
type brokenTrail struct{ *audit.Trail }

func (brokenTrail) AppendIf(context.Context, audit.Entry, int64) (int64, error) {
	return 0, audit.ErrUnavailable
}

func TestNothingIsDoneWithoutAnIntent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Desk = New(s.client, brokenTrail{s.trail}, nil, nil)
	_, err := s.do(s.request("project.rename", "name", "x"))
	require.ErrorIs(t, err, audit.ErrUnavailable)
	require.ErrorContains(t, err, "nothing was done")
	require.Zero(t, s.writes.Load())
}

// A process that ended between intent and outcome leaves a trace; the next start closes
// it, once.
func TestTheNextStartEndsAnOpenAction(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, r := range []Request{s.request("project.rename", "name", "x"), s.request("project.create", "name", "x", "vertical", "B2B")} {
		require.NoError(t, s.intend(t.Context(), newAction(r, s.host), Plan{}))
	}
	for range 2 {
		require.NoError(t, New(s.client, s.trail, nil, nil).EndOpen(t.Context()))
	}
	details, kinds := s.entries()
	require.Equal(t, []string{TypeIntended, TypeIntended, TypeEnded, TypeEnded}, kinds)
	for _, end := range details[2:] {
		require.Equal(t, OutcomeUnknown, end.Outcome)
		require.Equal(t, ada, end.Person)
		require.Contains(t, end.Error, "the relay ended before")
	}
	require.ElementsMatch(t, []string{details[0].Action, details[1].Action}, []string{details[2].Action, details[3].Action})
}

// Another host's action may still be under way: it is neither ended nor overtaken,
// until it is too old for that.
func TestAnotherRelaysAction(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	theirs := newAction(s.request("project.rename", "name", "x"), "another-host")
	require.NoError(t, s.intend(t.Context(), theirs, Plan{}))
	require.NoError(t, s.EndOpen(t.Context()))
	_, err := s.do(s.request("project.rename", "name", "y"))
	require.ErrorIs(t, err, ErrUnderWay)
	require.ErrorContains(t, err, "ada@laptop at another-host")
	_, kinds := s.entries()
	require.Equal(t, []string{TypeIntended}, kinds)

	old := theirs.entry(TypeIntended, nil, nil)
	old.Time, old.Project, old.Subject = time.Now().Add(-2*underWay), theirs.project, SubjectOf(theirs.Operation)
	_, err = s.trail.Append(t.Context(), *old)
	require.NoError(t, err)
	_, err = s.do(s.request("project.rename", "name", "y"))
	require.NoError(t, err)
	_, kinds = s.entries()
	require.Equal(t, []string{TypeIntended, TypeIntended, TypeEnded, TypeIntended, TypeEnded}, kinds)
}

// Many actions at once wait for each other: an intent is always followed by its end.
func TestActionsWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	errs := make(chan error)
	for i := range 8 {
		go func() {
			r := s.request("project.create", "name", strings.Repeat("x", i+1), "vertical", "B2B")
			_, err := s.Do(t.Context(), r)
			errs <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	details, kinds := s.entries()
	for i := 0; i < len(kinds); i += 2 {
		require.Equal(t, []string{TypeIntended, TypeEnded}, kinds[i:i+2])
		require.Equal(t, details[i].Action, details[i+1].Action)
	}
	require.False(t, errors.Is(s.EndOpen(t.Context()), ErrUnderWay))
	require.EqualValues(t, 8, s.writes.Load())
}
