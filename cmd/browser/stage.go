package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/testbed/oidctest"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// hostile is a text that pages must show as text: markup, a turned direction, and much of it.
const hostile = `<img src=x onerror=alert(1)><script>alert(2)</script>{{.}}` + "\u202egnp.exe"

// rate is of each environment, in events a second.
const rate = 50

// stage is a relay with a story to look into.
type stage struct {
	workspace *rig.Workspace
	relay     *rig.Relay
	web       string // the console's address
	binary    string
	api       *editedAPI
	picky     *receiver // a sink that refuses events
	witness   *witnessed
	provider  *oidctest.Provider

	flowing, silent workspacesim.Environment
	weakened        int64    // the index of the entry about the weakened policy
	sinks           []string // whose pages are looked at
}

func newStage(ctx context.Context, o options, dir string) (s *stage, err error) {
	s = &stage{binary: o.binary, sinks: []string{"dead", "picky"}, picky: newReceiver(http.StatusBadRequest)}
	if s.workspace, err = rig.StartWorkspace(ctx, workspacesim.Options{Projects: 1}); err != nil {
		return s, err
	}
	s.api = newEditedAPI(s.workspace.Handler())
	s.flowing, s.silent = s.workspace.Environments()[0], s.workspace.Environments()[1]
	if s.relay, err = rig.NewRelay(ctx, o.binary, filepath.Join(dir, "relay")); err != nil {
		return s, err
	}
	free, err := rig.FreeAddresses(ctx, 1)
	if err != nil {
		return s, err
	}
	s.web = "http://" + free[0]
	if s.witness, err = startWitness(ctx, o.binary, dir); err != nil {
		return s, err
	}
	if s.provider, err = oidctest.Start(s.web + "/login/callback"); err != nil {
		return s, err
	}
	s.provider.Know("olga", oidctest.Claims{"groups": []string{"sre"}, "preferred_username": "olga"})
	s.provider.Know("vera", oidctest.Claims{"groups": []string{"staff"}, "preferred_username": "vera"})
	if err := s.teach(); err != nil {
		return s, err
	}
	if err := s.relay.Start(ctx, s.config(), time.Minute, s.workspace.Env()); err != nil {
		return s, err
	}
	return s, s.play(ctx)
}

// config has short intervals, so that the story is told soon.
func (s *stage) config() string {
	text := fmt.Sprintf(`data_dir: %q
console:
  listen: %q
  url: %q
  oidc: {issuer: %q, client_id: %s, client_secret: %s, roles: [{role: viewer, value: staff}, {role: operator, value: sre}]}
workspace: {base_url: %q, key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: %q, anonymous: %s/%s}
admin: {listen: %q}
settings: {interval: 1s}
streaming: {interval: 1s}
audit: {key_file: %q, witnesses: [{url: %q, key: %q}]}
policies: {packs: [baseline]}
sinks:
  - {name: archive, file: {path: %q}}
  - {name: dead, webhook: {url: "http://127.0.0.1:1/"}}
  - {name: picky, webhook: {url: %q}, match: {types: [event_log.*]}}
environments:
`, s.relay.DataDir(), strings.TrimPrefix(s.web, "http://"), s.web, s.provider.Issuer, oidctest.ClientID, oidctest.ClientSecret, s.api.URL, workspacesim.DemoKeyID, s.relay.Ingest, s.flowing.Project, s.flowing.Environment,
		s.relay.Admin, s.witness.logKey, s.witness.url, s.witness.key, filepath.Join(s.relay.DataDir(), "..", "events.jsonl"), s.picky.URL)
	for _, e := range s.workspace.Environments() {
		text += fmt.Sprintf("  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}}\n", e.Project, e.Environment, s.relay.Ingest)
	}
	return text
}

// play tells the story, and waits until the relay knows it.
func (s *stage) play(ctx context.Context) error {
	until := func(what string, met func() bool) error {
		return rig.Until(ctx, 2*time.Minute, what, met, s.relay.Process())
	}
	if err := s.workspace.SetRate("", "", rate); err != nil {
		return err
	}
	if err := until("all settings were looked at", func() bool { return len(s.rows(ctx, timeline.Filter{Type: "settings.baseline"})) > 6 }); err != nil {
		return err
	}
	if err := until("events flow", func() bool { return s.flowed() >= 100 }); err != nil {
		return err
	}
	if err := s.workspace.SetStreamFaults(s.silent.Project, s.silent.Environment, workspacesim.StreamFaults{Silent: true}); err != nil {
		return err
	}
	s.picky.status.Store(http.StatusNoContent)
	s.api.edit(edit{"/password_strength_config", regexp.MustCompile(`"check_breach_on_creation": ?true`), `"check_breach_on_creation":false`})
	s.api.edit(edit{"/email_templates", regexp.MustCompile(`"html_content": ?"`), `"html_content":"<a href=\"https://app.example.com(@evil.example/\">Sign in</a>` + strings.Trim(jsonText(hostile), `"`) + strings.Repeat("x", 1<<20)})
	err := until("the changes are in the trail", func() bool {
		for _, row := range s.rows(ctx, timeline.Filter{Type: "settings.changed", Setting: "password_strength_config"}) {
			s.weakened = row.Index
		}
		return s.weakened > 0
	})
	if err != nil {
		return err
	}
	err = until("the silence is noticed", func() bool {
		return slices.ContainsFunc(s.environments(ctx), func(e health.Status) bool { return e.State == health.Silent })
	})
	if err != nil {
		return fmt.Errorf("%w; it reports %+v", err, s.environments(ctx))
	}
	return nil
}

// environments are the states that the relay reports; none while it does not answer.
func (s *stage) environments(ctx context.Context) (list []health.Status) {
	sections, err := s.client().Status(ctx, console.AskStatus{Sections: []string{"environments"}})
	if err == nil {
		_ = json.Unmarshal(sections["environments"], &list) // then none are reported
	}
	return list
}

// teach has the relay know four weeks of even traffic, so that it notices a silence within a minute.
func (s *stage) teach() error {
	m := &health.Rhythm{}
	now := time.Now()
	for last := now.Add(-4 * 7 * 24 * time.Hour); last.Before(now); last = last.Add(time.Second) {
		m.Observe(last, last.Add(time.Second), rate, 1)
	}
	models := map[string]any{}
	for _, e := range s.workspace.Environments() {
		models[e.Project+"/"+e.Environment] = map[string]any{"model": m}
	}
	raw, err := json.Marshal(map[string]any{"saved": now, "environments": models})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.relay.DataDir(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.relay.DataDir(), health.FileName), raw, 0o600)
}

// flowed is how many events the environment with the fewest has delivered.
func (s *stage) flowed() int64 {
	least := int64(0)
	for i, l := range s.workspace.Ledgers() {
		if n := int64(l.Counts.Acknowledged); i == 0 || n < least {
			least = n
		}
	}
	return least
}

func jsonText(text string) string {
	raw, _ := json.Marshal(text) // a text always has a form in JSON
	return string(raw)
}

func (s *stage) client() *console.Client { return console.NewClient(s.relay.DataDir()) }

// rows lists entries; none while the relay does not answer.
func (s *stage) rows(ctx context.Context, f timeline.Filter) (list []timeline.Row) {
	_ = s.client().List(ctx, console.ListTrail{Filter: f}, func(r timeline.Row) error { list = append(list, r); return nil })
	return list
}

// link gives a link that logs in whoever opens it, as an operator.
func (s *stage) link(ctx context.Context) (string, error) {
	opened, err := s.client().OpenWeb(ctx)
	return opened.URL, err
}

func (s *stage) close() {
	if s.relay != nil {
		s.relay.Close()
	}
	if s.witness != nil {
		s.witness.process.Kill()
	}
	if s.api != nil {
		s.api.Close()
	}
	if s.provider != nil {
		s.provider.Close()
	}
	if s.workspace != nil {
		s.workspace.Close()
	}
	s.picky.Close()
}

// receiver is a webhook with a status to choose.
type receiver struct {
	*httptest.Server
	status atomic.Int64
}

func newReceiver(status int64) *receiver {
	r := &receiver{}
	r.status.Store(status)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(r.status.Load()))
		_, _ = w.Write([]byte(hostile)) // what a destination says is text too
	}))
	return r
}

// editedAPI is the workspace's API, whose answers a person at its dashboard has edited.
type editedAPI struct {
	*httptest.Server
	mu    sync.Mutex
	edits []edit
}

// edit replaces the first text that matches, in answers to reads of a path with this end.
type edit struct {
	path string
	text *regexp.Regexp
	by   string
}

func newEditedAPI(next http.Handler) *editedAPI {
	a := &editedAPI{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		body := answer.Body.String()
		a.mu.Lock()
		for _, e := range a.edits {
			if at := e.text.FindStringIndex(body); at != nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, e.path) {
				body = body[:at[0]] + e.by + body[at[1]:]
			}
		}
		a.mu.Unlock()
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(answer.Code)
		_, _ = w.Write([]byte(body))
	}))
	return a
}

// edit makes edits that are seen at once, or none of them.
func (a *editedAPI) edit(edits ...edit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.edits = append(a.edits, edits...)
}

// witnessed is a witness, and the key of the log that it trusts.
type witnessed struct {
	process          *rig.Process
	url, key, logKey string // logKey is the file of the log's key
}

// startWitness makes the trail's key, and starts a witness that trusts it.
func startWitness(ctx context.Context, binary, dir string) (w *witnessed, err error) {
	w = &witnessed{logKey: filepath.Join(dir, "audit.key")}
	state := filepath.Join(dir, "witness")
	public, err := output(ctx, binary, "trail", "keygen", "--origin", "example.com/browser", "--file", w.logKey)
	if err != nil {
		return nil, err
	}
	if w.key, err = output(ctx, binary, "witness", "init", "--data-dir", state, "--name", "witness.example.com/browser"); err != nil {
		return nil, err
	}
	w.key = lastWord(w.key)
	free, err := rig.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	w.url = "http://" + free[0]
	command := rig.Command{Name: "the witness", Log: filepath.Join(dir, "witness.log"), Args: []string{
		binary, "witness", "--log", public, "--data-dir", state, "--listen", free[0], "--admin-listen", free[1],
	}}
	w.process, err = command.Start()
	return w, err
}

// output is what a command prints.
func output(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func lastWord(text string) string {
	words := strings.Fields(text)
	return words[len(words)-1]
}
