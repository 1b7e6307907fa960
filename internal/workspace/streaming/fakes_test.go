package streaming

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// api answers operations 13 and 14, with faults.
type api struct {
	mu      sync.Mutex
	kind    string // the destination's type; empty: none
	fields  map[string]string
	status  string
	puts    int
	asked   int      // requests of any kind
	secrets []string // every secret that was ever put

	rewrite  func(fields map[string]string) // what a proxy does on the way in
	lose     bool                           // a PUT has its effect, and its answer is lost
	garble   bool                           // and its answer is no JSON
	late     func()                         // set by a PUT: only this call has it shown
	lags     bool                           // PUTs have their effect by late
	failPut  int                            // status of every PUT
	failRead int                            // status of every GET in an environment
	page     bool                           // every GET gets a proxy's 404 page
	gone     bool                           // the environment does not exist
	blinks   int                            // so many requests find no environment
	second   map[string]string              // a config of the other type
	garbled  bool                           // reads of the other type fail

	answers         map[string]*string // the config in the answer to a read, by its type; empty: none
	answersUntilPut bool               // they end with the next PUT
	beforePut       func()

	outage     int    // status of every answer
	retryAfter string // its Retry-After
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.puts
}

func (a *api) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func (a *api) field(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fields[name]
}

func (a *api) sent() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.secrets)
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.outage != 0 {
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		reply(w, a.outage, map[string]any{"error_type": "fault"})
		return
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.Method == http.MethodPut {
		a.put(w, r, kind)
		return
	}
	if config := a.answers[kind]; config != nil {
		body := map[string]any{"event_log_streaming_config": json.RawMessage(*config)}
		if *config == "" {
			delete(body, "event_log_streaming_config")
		}
		reply(w, 200, body)
		return
	}
	switch {
	case a.page:
		w.WriteHeader(404)
		_, _ = w.Write([]byte("<html>Not Found</html>"))
	case !strings.Contains(r.URL.Path, "/environments/"):
		reply(w, 200, map[string]any{"project": map[string]any{}})
	case a.failRead != 0:
		reply(w, a.failRead, map[string]any{"error_type": "fault"})
	case a.gone, a.blinks > 0:
		a.blinks--
		reply(w, 404, map[string]any{"error_type": "environment_not_found"})
	case kind == "password_strength_config":
		reply(w, 200, map[string]any{kind: map[string]any{}})
	case a.kind != kind && a.garbled:
		reply(w, 403, map[string]any{"error_type": "fault"})
	case a.kind != kind && a.second != nil:
		reply(w, 200, map[string]any{"event_log_streaming_config": map[string]any{
			"destination_type": kind, "streaming_status": "ACTIVE", "destination_config": map[string]any{strings.ToLower(kind): a.second},
		}})
	case a.kind != kind:
		reply(w, 404, map[string]any{"error_type": "event_log_streaming_config_not_found"})
	default:
		reply(w, 200, map[string]any{"event_log_streaming_config": a.config(mask(a.fields))})
	}
}

func (a *api) put(w http.ResponseWriter, r *http.Request, kind string) {
	a.puts++
	if a.beforePut != nil {
		a.beforePut()
	}
	if a.answersUntilPut {
		a.answers = nil
	}
	var body struct {
		Config map[string]map[string]string `json:"destination_config"`
	}
	if a.failPut != 0 || json.NewDecoder(r.Body).Decode(&body) != nil {
		reply(w, max(a.failPut, 400), map[string]any{"error_type": "fault"})
		return
	}
	if a.lags {
		fields := body.Config[strings.ToLower(kind)]
		a.late = func() { a.kind, a.fields, a.status = kind, fields, "ACTIVE" }
		reply(w, 200, map[string]any{"event_log_streaming_config": map[string]any{}})
		return
	}
	a.kind, a.fields, a.status = kind, body.Config[strings.ToLower(kind)], "ACTIVE"
	a.secrets = append(a.secrets, a.fields["password"]+a.fields["api_key"])
	if a.rewrite != nil {
		a.rewrite(a.fields)
	}
	if a.lose {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.Close()
		return
	}
	if a.garble {
		_, _ = w.Write([]byte("<html>"))
		return
	}
	reply(w, 200, map[string]any{"event_log_streaming_config": a.config(a.fields)})
}

func (a *api) config(fields map[string]string) map[string]any {
	return map[string]any{
		"destination_type": a.kind, "streaming_status": a.status, "later_field": 1,
		"destination_config": map[string]any{strings.ToLower(a.kind): fields},
	}
}

func mask(fields map[string]string) map[string]string {
	masked := map[string]string{}
	for name, v := range fields {
		if name == "password" || name == "api_key" {
			name, v = name+"_last_four", v[max(0, len(v)-4):]
		}
		masked[name] = v
	}
	return masked
}

// requests counts the request ids of all tests.
var requests atomic.Int64

func reply(w http.ResponseWriter, status int, body map[string]any) {
	body["request_id"], body["status_code"] = fmt.Sprintf("r-%d", requests.Add(1)), status
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// trail keeps entries in memory, as the audit trail does on disk.
type trail struct {
	mu      sync.Mutex
	entries []audit.Entry
	broken  error  // every append fails
	race    func() // comes before the next append
}

func (tr *trail) Last(_ context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, e := range slices.Backward(tr.entries) {
		if e.Project == project && e.Environment == environment && e.Subject == subject {
			return e, true, nil
		}
	}
	return audit.Entry{}, false, nil
}

func (tr *trail) AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error) {
	if race := tr.race; race != nil {
		tr.race = nil
		race()
	}
	last, found, _ := tr.Last(ctx, e.Project, e.Environment, e.Subject)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.broken != nil {
		return 0, tr.broken
	}
	if found && last.Index != newest || !found && newest != -1 {
		return 0, audit.ErrConflict
	}
	e.Index = int64(len(tr.entries))
	if newest >= 0 {
		e.PreviousIndex = &newest
	}
	tr.entries = append(tr.entries, e)
	return e.Index, nil
}

func (tr *trail) Get(_ context.Context, index int64) (audit.Recorded, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if index < 0 || index >= int64(len(tr.entries)) {
		return audit.Recorded{}, audit.ErrMissing
	}
	return audit.Recorded{Entry: tr.entries[index]}, nil
}

func (tr *trail) types() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var types []string
	for _, e := range tr.entries {
		types = append(types, strings.TrimPrefix(e.Type, "streaming."))
	}
	return types
}

// changes returns the entries of changed configs.
func (tr *trail) changes() (all []audit.Entry, causes []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, e := range tr.entries {
		if e.Type == TypeChanged {
			var d detail
			_ = json.Unmarshal(e.Detail, &d)
			all, causes = append(all, e), append(causes, d.Cause)
		}
	}
	return all, causes
}

func (tr *trail) newest() (audit.Entry, detail) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	e := tr.entries[len(tr.entries)-1]
	var d detail
	_ = json.Unmarshal(e.Detail, &d)
	return e, d
}

// rig is an API, a trail and a bucket, while reconcilers come and go.
type rig struct {
	t     *testing.T
	api   *api
	url   string
	trail *trail
	table store.Table
}

func newRig(t *testing.T) *rig {
	t.Helper()
	a := &api{}
	web := httptest.NewServer(a)
	t.Cleanup(web.Close)
	return &rig{t, a, web.URL, &trail{}, newTable(t)}
}

func newTable(t *testing.T) store.Table {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: t.TempDir(), Salvage: t.TempDir(), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.Table()
}

func environments(s ...*config.Stream) []config.Environment {
	var all []config.Environment
	for i, stream := range s {
		all = append(all, config.Environment{Project: "shop", Environment: string(rune('a' + i)), Stream: stream})
	}
	return all
}

// start makes a reconciler, as a process does when it starts.
func (g *rig) start(change func(*Options), streams ...*config.Stream) (*Reconciler, *credentials.Store) {
	g.t.Helper()
	envs := environments(streams...)
	store, err := credentials.Open(g.t.Context(), g.table, credentials.Options{Environments: envs, Overlap: 15 * time.Minute})
	require.NoError(g.t, err)
	g.t.Cleanup(store.Close)
	client, err := management.New(management.Options{
		BaseURL: g.url, KeyID: "k", Secret: secret.New("management-secret"), RequestsPerSecond: 1000, MaxAttempts: 1,
	})
	require.NoError(g.t, err)
	o := Options{
		Environments: envs, Client: client, Credentials: store, Recorder: g.trail, Interval: time.Hour,
		Presence: workspace.NewPresence(g.trail, slog.New(slog.DiscardHandler)),
	}
	if change != nil {
		change(&o)
	}
	return New(o), store
}
