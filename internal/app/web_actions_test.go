package app

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// person is a visitor of the console, by a session or by a certificate.
type person struct {
	t       *testing.T
	role    string
	front   string
	session *http.Cookie
	certs   []tls.Certificate
}

// ask sends a request, and gives the place that it leads to for a redirect, or else the page.
func (p person) ask(method, path string, form url.Values, headers ...string) (code int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.front+path, strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if p.session != nil {
		req.AddCookie(p.session)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: p.certs}} //nolint:gosec // of the test
	resp, err := transport.RoundTrip(req)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	if to := resp.Header.Get("Location"); to != "" {
		return resp.StatusCode, to
	}
	return resp.StatusCode, string(text)
}

func (p person) sees(path string) string {
	p.t.Helper()
	code, body := p.ask(http.MethodGet, path, nil)
	require.Equal(p.t, http.StatusOK, code, "%s: %s", path, body)
	return body
}

// people are those of a running console, by role.
type people struct {
	operator, auditor, viewer person
	client                    *console.Client
}

// byCertificate lets a viewer and an auditor into the console of cfg.
func byCertificate(t *testing.T, dir string, cfg *config.Config) (viewer, auditor tls.Certificate) {
	t.Helper()
	var roots []byte
	var pairs []tls.Certificate
	for _, role := range []string{"console", "viewer", "auditor"} {
		certFile, keyFile := issue(t, dir, role, time.Now().Add(30*24*time.Hour))
		pem, err := os.ReadFile(certFile)
		require.NoError(t, err)
		roots = append(roots, pem...)
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		require.NoError(t, err)
		pairs = append(pairs, pair)
	}
	ca := filepath.Join(dir, "people.crt")
	require.NoError(t, os.WriteFile(ca, roots, 0o600))
	cfg.Console = config.Console{
		Listen: "127.0.0.1:0", TLS: &config.TLSServer{CertFile: filepath.Join(dir, "console.crt"), KeyFile: filepath.Join(dir, "console.key")},
		SessionLength: time.Hour, IdleLength: time.Hour,
		Certificates: &config.ConsoleCertificates{CAFile: ca, Roles: []config.CertificateRole{{Role: "viewer", Subject: "CN=viewer"}, {Role: "auditor", Subject: "CN=auditor"}}},
	}
	return pairs[1], pairs[2]
}

// enter logs an operator in by a link, and gives the others their certificates.
func enter(t *testing.T, cfg *config.Config, viewer, auditor tls.Certificate) people {
	t.Helper()
	client := console.NewClient(cfg.DataDir)
	opened, err := client.OpenWeb(t.Context())
	require.NoError(t, err)
	front, _, _ := strings.Cut(opened.URL, "/open/")
	_, _, cookies := visit(t, opened.URL, nil)
	require.Len(t, cookies, 1)
	return people{
		person{t, "operator", front, cookies[0], nil}, person{t, "auditor", front, nil, []tls.Certificate{auditor}}, person{t, "viewer", front, nil, []tls.Certificate{viewer}}, client,
	}
}

func (p people) entries(kind string) (rows []timeline.Row) {
	p.operator.t.Helper()
	require.NoError(p.operator.t, p.client.List(p.operator.t.Context(), console.ListTrail{Filter: timeline.Filter{Type: kind}}, func(row timeline.Row) error {
		rows = append(rows, row)
		return nil
	}))
	return rows
}

// hidden are the fields of a plan's form.
var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// deed is an action of one person.
type deed struct {
	path string
	form url.Values
	// plan is in the page of what would happen, and kind the type of the one entry that names the person.
	plan, kind string
	by         person
	as         string
	refused    []person
}

// does plays a deed: those without the role are refused, and so is another site; a plan changes
// nothing; the form, sent twice at once, acts once; and the trail has the person's name. It gives the
// page that the action leads to.
func (p people) does(d deed) (page string) {
	t := p.operator.t
	t.Helper()
	before := len(p.entries(d.kind))
	confirmed := url.Values{"confirm": {"yes"}}
	for name, values := range d.form {
		confirmed[name] = values
	}
	for _, other := range d.refused {
		for _, form := range []url.Values{d.form, confirmed} {
			code, body := other.ask(http.MethodPost, d.path, form)
			require.Equal(t, http.StatusForbidden, code, "%s: %s", d.path, body)
			require.Contains(t, body, "This takes the role")
		}
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		code, body := d.by.ask(http.MethodPost, d.path, confirmed, headers...)
		require.Equal(t, http.StatusForbidden, code, "%s: %s", d.path, body)
	}
	code, body := d.by.ask(http.MethodPost, d.path, d.form)
	require.Equal(t, http.StatusOK, code, "%s: %s", d.path, body)
	require.Contains(t, html.UnescapeString(body), d.plan, d.path)
	require.Len(t, p.entries(d.kind), before, "%s: a plan, or somebody who may not, has acted", d.path)

	form := url.Values{"confirm": {"yes"}}
	for _, field := range hidden.FindAllStringSubmatch(body, -1) {
		form.Add(html.UnescapeString(field[1]), html.UnescapeString(field[2]))
	}
	var both sync.WaitGroup
	var pages [2]string
	for i := range pages {
		both.Go(func() {
			code, to := d.by.ask(http.MethodPost, d.path, form)
			assert.Equal(t, http.StatusSeeOther, code, "%s: %s", d.path, to)
			pages[i] = to
		})
	}
	both.Wait()
	require.Equal(t, pages[0], pages[1])
	waiting.Until(t, func() bool { return len(p.entries(d.kind)) > before })
	rows := p.entries(d.kind)
	require.Len(t, rows, before+1, "%s: it was done twice", d.path)
	require.Contains(t, rows[before].Who(), d.as, d.path)
	return pages[0]
}

// history sums up the table of a sink's history.
func (p people) history(sink string) (sums [3]int) {
	p.operator.t.Helper()
	page := p.viewer.sees("/sinks/history/" + sink)
	for _, row := range regexp.MustCompile(`<td class="number"[^>]*>(\d+)</td><td class="number"[^>]*>(\d+)</td><td class="number"[^>]*>(\d+)</td></tr>`).FindAllStringSubmatch(page, -1) {
		for i := range sums {
			n, err := strconv.Atoi(row[i+1])
			require.NoError(p.operator.t, err)
			sums[i] += n
		}
	}
	return sums
}

// ended waits for the end of a piece of work.
func (p people) ended(page string) (body string) {
	waiting.Until(p.operator.t, func() bool {
		body = p.operator.sees(page)
		return !strings.Contains(body, "Under way")
	})
	return body
}

// destination is a webhook with an answer to choose, which keeps what it took.
type destination struct {
	*httptest.Server
	status atomic.Int64

	mu    sync.Mutex
	taken []string // guarded by mu
}

func newDestination(t *testing.T, status int64) *destination {
	d := &destination{}
	d.status.Store(status)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := int(d.status.Load())
		if text, _ := io.ReadAll(r.Body); status < 300 {
			d.mu.Lock()
			d.taken = append(d.taken, string(text))
			d.mu.Unlock()
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":"no room for <b>you</b>"}`)
	}))
	t.Cleanup(d.Close)
	return d
}

// count is how often an event has arrived.
func (d *destination) count(id string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, body := range d.taken {
		n += strings.Count(body, `"event_id":"`+id+`"`)
	}
	return n
}

// People act on dead letters and on kept events, each action once, and under their names.
func TestPeopleActOnDeadLetters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	to := newDestination(t, http.StatusBadRequest)
	cfg := testConfig(dir, config.Sink{Name: "picky", Webhook: &config.Webhook{URL: secret.New(to.URL)}, Match: &config.Match{Types: []string{"event_log.*"}}})
	viewer, auditor := byCertificate(t, dir, cfg)
	cfg.Console.Redact = &config.Redact{Remove: []string{"/email"}}
	cfg.SetDefaults()
	r := start(t, cfg)
	p := enter(t, cfg, viewer, auditor)
	byOperator := deed{by: p.operator, as: "by link", refused: []person{p.viewer, p.auditor}}
	letters := func() (n int) {
		require.NoError(t, p.client.Letters(t.Context(), console.ListLetters{}, func(*console.Letter) error { n++; return nil }))
		return n
	}
	refused := func(ids ...string) {
		before := letters()
		for _, id := range ids {
			r.pushLines(fmt.Sprintf(`{"event_id":%q,"action":"LOGIN","email":"ann@example.com"}`, id))
		}
		waiting.Until(t, func() bool { return letters() == before+len(ids) })
	}
	refused("first", "second", "third")

	assert.Contains(t, p.viewer.sees("/sinks"), `<a href="/sinks/letters?reason=`, "the reasons are not grouped")
	list := p.viewer.sees("/sinks/letters?sink=picky")
	assert.NotContains(t, list, "Replay all that fit")
	one := regexp.MustCompile(`/sinks/letters/\d+`).FindString(list)
	for _, who := range []person{p.operator, p.auditor, p.viewer} {
		has := who.role != "viewer"
		letter := who.sees(one)
		assert.Contains(t, letter, "no room for &lt;b&gt;you", "what the destination said is not shown")
		assert.Contains(t, letter, "LOGIN")
		assert.Equal(t, has, strings.Contains(letter, "ann@example.com"), "console.redact")
		live := who.sees("/live")
		assert.Contains(t, live, "LOGIN")
		assert.Equal(t, has, strings.Contains(live, "ann@example.com"), "console.redact")
	}

	assert.Contains(t, p.viewer.sees("/sinks"), `<a href="/sinks/history/picky">`)
	var passed [3]int // delivered events, failed attempts, refused events
	waiting.Until(t, func() bool { passed = p.history("picky"); return passed[2] >= 3 }, "a letter is there before it is counted")
	assert.GreaterOrEqual(t, passed[1], 3)
	assert.Equal(t, 3, passed[2])
	errors := p.viewer.sees("/sinks/history/picky?hours=12")
	assert.Contains(t, errors, "The last 12 hours")
	assert.Regexp(t, `<td class="number"[^>]*>\d+</td><td class="text"[^>]*><bdi>[^<]*no room for &lt;b&gt;you`, errors)
	code, _ := p.viewer.ask(http.MethodGet, "/sinks/history/none", nil)
	assert.Equal(t, http.StatusNotFound, code)

	discard := byOperator
	discard.path, discard.form, discard.kind = "/sinks/letters/discard", url.Values{"number": {strings.TrimPrefix(one, "/sinks/letters/")}}, "deadletters.discarded"
	discard.plan = "1 dead letters would be removed for good."
	assert.Contains(t, p.ended(p.does(discard)), "<dt>Removed</dt><dd>1</dd>")
	assert.Equal(t, 2, letters())

	replay := byOperator
	replay.path, replay.form, replay.kind, replay.plan = "/sinks/letters/replay", url.Values{"sink": {"picky"}}, "deadletters.replayed", "2 dead letters would be handed to their sink again."
	assert.Contains(t, p.ended(p.does(replay)), "<dt>Refused again</dt><dd>2</dd>")
	assert.Equal(t, 2, letters(), "a letter that is refused again stays")
	to.status.Store(http.StatusNoContent)
	assert.Contains(t, p.ended(p.does(replay)), "<dt>Delivered</dt><dd>2</dd>")
	assert.Zero(t, letters())
	assert.Equal(t, []int{0, 1, 1}, []int{to.count("first"), to.count("second"), to.count("third")})
	now := p.history("picky")
	assert.Equal(t, passed[1:], now[1:], "replays are no live delivery")
	waiting.Until(t, func() bool { now = p.history("file"); return now[0] >= 3 })
	assert.Equal(t, []int{0, 0}, now[1:])
	code, body := p.operator.ask(http.MethodPost, "/sinks/letters/replay", url.Values{"sink": {"picky"}})
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "There is nothing to do.")

	span := byOperator
	span.path, span.form, span.kind = "/sinks/replay", url.Values{"sink": {"picky"}, "since": {"2026-01-01T00:00"}, "match": {"id.startsWith(\"sec\")"}}, "journal.replayed"
	span.plan = "1 events of "
	assert.Contains(t, p.ended(p.does(span)), "<dt>Delivered</dt><dd>1</dd>")
	assert.Equal(t, []int{0, 2, 1}, []int{to.count("first"), to.count("second"), to.count("third")})
	var told struct {
		Sink, Match string
		Since       time.Time
	}
	entry := p.entries("journal.replayed")[0].Index
	require.NoError(t, p.client.Entries(t.Context(), timeline.Filter{Index: &entry}, func(e timeline.Entry) error { return json.Unmarshal(e.Detail, &told) }))
	assert.Equal(t, []string{"picky", "id.startsWith(\"sec\")", "2026-01-01"}, []string{told.Sink, told.Match, told.Since.Format(time.DateOnly)})

	// A replay to a destination that is down goes on until somebody stops it.
	to.status.Store(http.StatusServiceUnavailable)
	page := p.does(span)
	waiting.Until(t, func() bool { return strings.Contains(p.operator.sees(page), "Retried for") })
	code, _ = p.auditor.ask(http.MethodGet, page, nil)
	assert.Equal(t, http.StatusForbidden, code)
	stop := byOperator
	stop.path, stop.kind, stop.plan = page+"/stop", "console.work_stopped", "would be stopped"
	assert.Contains(t, p.ended(p.does(stop)), "It has ended early: <bdi>somebody stopped it")
	_, body = p.operator.ask(http.MethodPost, page+"/stop", nil)
	assert.Contains(t, body, "has ended already")
	to.status.Store(http.StatusNoContent)
	require.NoError(t, r.stop())
}

// People act on the stream of an environment.
func TestPeopleActOnAStream(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	defer api.Close()
	dir := t.TempDir()
	cfg := testConfig(dir)
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	e := sim.Environments()[0]
	cfg.Environments = []config.Environment{{Project: e.Project, Environment: e.Environment, Mode: config.ModeObserve, Stream: &config.Stream{Relay: &config.StreamRelay{Hostname: "localhost:3100"}}}}
	cfg.SetDefaults()
	cfg.Settings.Disabled, cfg.Streaming.Interval = true, 50*time.Millisecond
	viewer, auditor := byCertificate(t, dir, cfg)
	r := start(t, cfg)
	p := enter(t, cfg, viewer, auditor)
	waiting.Until(t, func() bool { return len(p.entries("streaming.baseline")) == 1 })
	where, page := url.Values{"project": {e.Project}, "environment": {e.Environment}, "reason": {"a drill"}}, "/streaming/"+e.Project+"/"+e.Environment
	byOperator := deed{by: p.operator, as: "by link", refused: []person{p.viewer, p.auditor}}

	for path, kind := range map[string]string{"apply": "would be set at the provider.", "rotate": "would generate another push credential"} {
		assert.Contains(t, p.operator.sees(page), `action="/streaming/`+path+`"`)
		assert.NotContains(t, p.auditor.sees(page), `action="/streaming/`+path+`"`, kind)
		unknown := url.Values{"project": {e.Project}, "environment": {"other"}}
		code, body := p.operator.ask(http.MethodPost, "/streaming/"+path, unknown)
		assert.Equal(t, http.StatusConflict, code, "a plan promises what cannot be done: %s", body)
	}
	apply := byOperator
	apply.path, apply.form, apply.kind, apply.plan = "/streaming/apply", where, "streaming.put_intended", "would be set at the provider."
	assert.Equal(t, page, p.does(apply))
	_, body := p.operator.ask(http.MethodPost, "/streaming/apply", where)
	assert.Contains(t, body, "is as it is desired")
	assert.Contains(t, body, "There is nothing to do.")

	rotate := apply
	rotate.path, rotate.plan = "/streaming/rotate", "would generate another push credential"
	before, err := p.client.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, page, p.does(rotate))
	after, err := p.client.Credentials(t.Context())
	require.NoError(t, err)
	assert.Len(t, after, len(before)+1, "the credential was rotated twice")
	history := p.viewer.sees(page)
	assert.Contains(t, history, "streaming.put_intended")
	assert.NotContains(t, history, "Plan to rotate")

	silence := byOperator
	silence.path, silence.kind, silence.plan = "/silences/add", "silence.added", "would raise no alarm for 1h30m0s, because: a drill"
	silence.form = url.Values{"project": {e.Project}, "environment": {e.Environment}, "reason": {"a drill"}, "hours": {"1.5"}}
	p.does(silence)
	id := regexp.MustCompile(`name="silence" value="([^"]+)"`).FindStringSubmatch(p.operator.sees("/streaming"))
	require.Len(t, id, 2)
	assert.NotContains(t, p.auditor.sees("/streaming"), `name="silence"`)
	end := byOperator
	end.path, end.form, end.kind, end.plan = "/silences/end", url.Values{"silence": {id[1]}}, "silence.ended", "would end now. Its reason was: a drill"
	assert.Equal(t, "/streaming", p.does(end))
	assert.Contains(t, p.operator.sees("/streaming"), "No environment is silenced.")
	code, _ := p.operator.ask(http.MethodPost, "/silences/end", end.form)
	assert.Equal(t, http.StatusNotFound, code)

	review := deed{path: "/changes/0/annotate", form: url.Values{"ticket": {"SEC-1"}}, plan: "would mark entry 0 as reviewed", kind: timeline.TypeAnnotated, by: p.auditor, as: "by certificate", refused: []person{p.viewer}}
	assert.Equal(t, "/changes/0", p.does(review))
	assert.Contains(t, p.viewer.sees("/changes/0"), "ticket <bdi>SEC-1</bdi>")
	assert.NotContains(t, p.viewer.sees("/changes/0"), "Acknowledge")
	assert.NotContains(t, p.viewer.sees("/changes"), "form=proofs")
	assert.Contains(t, p.auditor.sees("/changes"), "form=proofs")
	for _, path := range []string{"/changes/export?form=proofs", "/tlog/checkpoint", "/prove"} { // an auditor's requests
		code, body := p.viewer.ask(http.MethodGet, path, nil)
		assert.Equal(t, http.StatusForbidden, code, path)
		assert.Contains(t, body, "This takes the role auditor", path)
	}
	require.NoError(t, r.stop())
}

// An operator logs another one out.
func TestAnOperatorLogsAnotherOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := testConfig(dir)
	viewer, auditor := byCertificate(t, dir, cfg)
	r := start(t, cfg)
	other := enter(t, cfg, viewer, auditor).operator
	list, err := console.NewClient(cfg.DataDir).Sessions(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	p := enter(t, cfg, viewer, auditor)
	require.Contains(t, p.operator.sees("/sessions"), `name="session" value="`+list[0].ID+`"`)
	revoke := deed{path: "/sessions/revoke", form: url.Values{"session": {list[0].ID}}, plan: "would be logged out now", kind: "console.session_revoked", by: p.operator, as: "by link", refused: []person{p.viewer, p.auditor}}
	assert.Equal(t, "/sessions", p.does(revoke))
	code, _ := other.ask(http.MethodGet, "/", nil)
	assert.Equal(t, http.StatusUnauthorized, code)
	p.operator.sees("/")
	require.NoError(t, r.stop())
}
