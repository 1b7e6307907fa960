package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
)

var ann = workspace.Person{User: "ann", Host: "desk"}

// hostile is a text that a page must show as text.
const hostile = `<script>alert(1)</script>`

// serve is a stage by its parts.
func serve(t testing.TB) (*Console, *httptest.Server) {
	t.Helper()
	s := newStage(t)
	return s.Console, s.Server
}

// stage is a console for the browser over one for the command line, with a trail.
type stage struct {
	*Console
	*httptest.Server
	dir    string
	trail  *audit.Trail
	index  *timeline.Index
	status map[string]any
}

func newStage(t testing.TB) *stage {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	trail, stopTrail := trailtest.Serve(t, filepath.Join(dir, "trail"))
	s := &stage{dir: dir, trail: trail, index: timeline.Open(timeline.Options{Path: filepath.Join(dir, timeline.FileName), Trail: trail}), status: map[string]any{
		"environments": []health.Status{{Project: "shop", Environment: "live", State: health.Silent, Reason: hostile, Action: "look at the sender"}},
		"journal":      map[string]string{"error": "the disk is away"},
	}}
	s.begin(t, log, stopTrail)
	return s
}

// begin serves a stage's trail until the end of the test.
func (s *stage) begin(t testing.TB, log *slog.Logger, stopTrail func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { s.index.Keep(ctx) })
	kept, err := disk.Open(disk.Config{Dir: filepath.Join(s.dir, "store"), Salvage: filepath.Join(s.dir, "salvage"), Writer: "test", Logger: log})
	require.NoError(t, err)
	pushers, err := credentials.Open(ctx, kept.Table(), credentials.Options{Logger: log})
	require.NoError(t, err)
	status := func(_ context.Context, names ...string) map[string]any {
		all := maps.Clone(s.status)
		maps.DeleteFunc(all, func(name string, _ any) bool { return len(names) > 0 && !slices.Contains(names, name) })
		return all
	}
	asking, err := console.Listen(ctx, s.dir, console.Options{
		Status: status, Trail: s.trail, Timeline: s.index, Logger: log,
		Streaming:   func() (*streaming.Reconciler, error) { return nil, errors.New("the configuration has no workspace") },
		Silences:    health.NewSilences(s.trail, nil),
		Credentials: pushers,
	}, func(err error) { t.Error(err) })
	require.NoError(t, err)
	files := &Trail{
		Files:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "files") }),
		Policy: func() (string, error) { return "log KEY\n", nil },
		Dir:    filepath.Join(s.dir, tiles.Dir),
	}
	visitors, err := access.New(ctx, config.Console{
		SessionLength: 8 * time.Hour, IdleLength: time.Hour, Certificates: &config.ConsoleCertificates{Roles: []config.CertificateRole{
			{Role: "viewer", Subject: "CN=viewer"}, {Role: "auditor", Subject: "CN=auditor"}, {Role: "operator", Subject: "CN=operator"},
		}},
	}, kept.Table(), log)
	require.NoError(t, err)
	s.Console = New(Options{
		Logger: log, Trail: func() (*Trail, error) { return files, nil }, Access: visitors,
		Policies: func() config.Policies {
			return config.Policies{Packs: []string{"baseline"}, Rules: []config.PolicyRule{{Name: "short", Setting: "project", CEL: "true", Reason: hostile, Severity: "low"}}}
		},
		Ask: func(by workspace.Person) (*console.Client, error) { return asking.Client(by), nil },
	})
	s.Server = httptest.NewServer(s.Console)
	t.Cleanup(func() {
		s.Close()
		pushers.Close()
		assert.NoError(t, kept.Close())
		assert.NoError(t, asking.Close(context.Background()))
		cancel()
		keeping.Wait()
		stopTrail()
	})
}

// answer is a response that was read.
type answer struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// send makes a request with a session's cookie. It follows no redirect.
func send(t testing.TB, method, url string, session *http.Cookie, headers ...string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	if session != nil {
		req.AddCookie(session)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, resp.Cookies()}, string(text)
}

func login(t testing.TB, c *Console, at string) *http.Cookie {
	t.Helper()
	path, _ := c.opts.Access.Link(ann)
	resp, body := send(t, http.MethodGet, at+path, nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, body)
	require.Len(t, resp.Cookies, 1)
	return resp.Cookies[0]
}

func TestALogoutEndsTheSession(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	resp, _ := send(t, http.MethodPost, server.URL+"/logout", cookie, "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	resp, _ = send(t, http.MethodGet, server.URL+"/", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another site has logged the person out")
	send(t, http.MethodPost, server.URL+"/logout", cookie)
	resp, _ = send(t, http.MethodGet, server.URL+"/", cookie)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestThePageShowsTextAsText(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	resp, body := send(t, http.MethodGet, server.URL+"/", login(t, c, server.URL))
	assert.NotContains(t, body, hostile)
	assert.Contains(t, body, "&lt;script&gt;alert(1)")
	assert.Contains(t, body, "look at the sender")
	assert.Contains(t, body, "journal: the disk is away")
	assert.Equal(t, contentPolicy, resp.Header.Get("Content-Security-Policy"))
	resp, _ = send(t, http.MethodGet, server.URL+"/assets/style.css", nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Content-Type"), "text/css")
}

// What is read from the other end of a room is no good news while a sink fails, or a part is not known.
func TestTheOverviewIsGreenOnlyIfAllIsFine(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	session := login(t, c.Console, c.URL)
	c.status = map[string]any{
		"environments": []health.Status{{Project: "shop", Environment: "live", State: health.Flowing}},
		"sinks":        []console.Sink{{Name: "siem", Configured: true, Delivery: &relay.Delivery{FailingSince: time.Unix(1, 0)}}},
	}
	_, body := send(t, http.MethodGet, c.URL+"/", session)
	assert.Contains(t, body, "The environment is fine, but not everything is")
	assert.Contains(t, body, "sink siem fails")
	assert.Contains(t, body, "auditrelay sinks check siem tries it", "nobody says what to do")
	assert.Contains(t, body, "hero is-bad")
	c.status["sinks"] = []console.Sink{{Name: "siem", Configured: true, Delivery: &relay.Delivery{}}}
	_, body = send(t, http.MethodGet, c.URL+"/", session)
	assert.Contains(t, body, "The environment is fine</p>")
	assert.Contains(t, body, "hero is-good")
	for section, c2 := range map[string]struct {
		with any
		says string
	}{
		"sinks":     {[]console.Sink{{Name: "siem", Configured: true, Delivery: &relay.Delivery{}, LagSeconds: 301}}, "sink siem lags"},
		"workspace": {management.Reach{Known: true, Cause: management.CauseUnauthorized}, "the management API cannot be used"},
		"ready":     {admin.Readiness{Parts: []admin.Part{{Name: "journal", State: "not_ready", Reason: "it is full"}}}, "pushes are refused (journal): it is full"},
		"settings":  {map[string]string{"error": "too late"}, "the section settings cannot be read"},
	} {
		was := c.status[section]
		c.status[section] = c2.with
		_, body = send(t, http.MethodGet, c.URL+"/", session)
		assert.Contains(t, body, "hero is-bad", section)
		assert.Contains(t, body, c2.says, section)
		c.status[section] = was
	}
	c.status["workspace"] = management.Reach{}
	_, body = send(t, http.MethodGet, c.URL+"/", session)
	assert.NotContains(t, body, "hero is-", "what is not known is neither good nor bad")
	c.status["sinks"] = map[string]string{"error": "the store is away"}
	_, body = send(t, http.MethodGet, c.URL+"/", session)
	assert.Contains(t, body, "hero is-bad")
	c.status = map[string]any{}
	_, body = send(t, http.MethodGet, c.URL+"/", session)
	assert.NotContains(t, body, "hero is-good", "nothing is looked after")
}

// A web page can point a name of its own at the listener.
func TestAStrangeNameIsRefused(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	resp, _ := send(t, http.MethodGet, server.URL+"/", login(t, c, server.URL), "Host", "rebound.example.com")
	assert.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
}

func TestAnErrorIsAPage(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	for path, want := range map[string]int{"/nothing": http.StatusNotFound, "/open/wrong": http.StatusForbidden, "/assets/none.css": http.StatusNotFound} {
		resp, body := send(t, http.MethodGet, server.URL+path, cookie)
		assert.Equal(t, want, resp.StatusCode, path)
		if path != "/assets/none.css" {
			assert.Contains(t, body, "</html>", path)
		}
	}
	resp, body := send(t, http.MethodGet, server.URL+"/", nil)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.Contains(t, body, "auditrelay console open")
	assert.NotContains(t, body, "<nav", "a stranger sees the navigation")
}

// fits calls a row of a table as a person with a role would.
func fits(t *testing.T, h http.Handler, method, form string, session *http.Cookie) (answer, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/it", strings.NewReader(form))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.AddCookie(session)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, resp.Cookies()}, string(text)
}

func TestAnActionIsConfirmedFirst(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	var did []string
	row := action{
		path: "/it", title: "Do it", least: access.Operator,
		prepare: func(a *asked) (prepared, error) {
			return prepared{
				plan: func() (plan, error) {
					return plan{Says: []string{"It would be done to " + a.value("what")}, Button: "Do it", With: url.Values{"seen": {"7"}}}, nil
				},
				do: func() (done, error) {
					did = append(did, a.value("what")+" "+a.value("seen")+" "+a.person.User)
					return done{"It is done to " + a.value("what"), "/"}, nil
				},
			}, nil
		},
	}
	handler := c.guard(row.least, c.action(row))
	resp, body := fits(t, handler, http.MethodPost, url.Values{"what": {hostile}}.Encode(), cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Empty(t, did, "it was done without a confirmation")
	assert.NotContains(t, body, hostile)
	assert.Contains(t, body, `name="what" value="&lt;script&gt;`)
	assert.Contains(t, body, `name="seen" value="7"`)

	resp, _ = fits(t, handler, http.MethodPost, url.Values{"what": {hostile}, "seen": {"7"}, "confirm": {"yes"}}.Encode(), cookie)
	assert.Equal(t, http.StatusSeeOther, resp.StatusCode)
	assert.Equal(t, []string{hostile + " 7 ann"}, did)
	require.Len(t, resp.Cookies, 1)

	req := httptest.NewRequest(http.MethodGet, "http://localhost/", http.NoBody)
	req.AddCookie(resp.Cookies[0])
	w := httptest.NewRecorder()
	assert.Equal(t, "It is done to "+hostile, takeNotice(w, req))
	assert.Negative(t, w.Result().Cookies()[0].MaxAge, "the message is shown twice")
}

func TestARoleIsAskedFor(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	resp, body := fits(t, c.guard(access.Operator+1, func(http.ResponseWriter, *asked) error { t.Error("the row was asked"); return nil }), http.MethodGet, "", cookie)
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Contains(t, body, "Your role is operator")
}

// A page whose making takes longer than the server allows for an answer, such as the plan of a replay
// of a large journal, is shown all the same. Whoever is not logged in has no more time.
func TestAPageThatTakesLong(t *testing.T) {
	t.Parallel()
	c, first := serve(t)
	cookie := login(t, c, first.URL)
	s := httptest.NewUnstartedServer(c)
	s.Config.WriteTimeout = time.Nanosecond
	s.Start()
	defer s.Close()
	resp, body := send(t, http.MethodGet, s.URL+"/changes", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "</html>")
	_, err := http.Get(s.URL + "/changes") //nolint:noctx,bodyclose // there is no answer
	require.Error(t, err)
}
