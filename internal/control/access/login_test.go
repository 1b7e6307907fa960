package access

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/oidctest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func newTable(t *testing.T, dir string) (store.Table, func()) {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: dir, Salvage: t.TempDir(), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	closed := false
	end := func() {
		if !closed {
			closed = true
			require.NoError(t, s.Close())
		}
	}
	t.Cleanup(end)
	return s.Table(), end
}

// stand is a console with a provider.
type stand struct {
	*Access
	provider *oidctest.Provider
	server   *httptest.Server
	log      *waiting.Output
	cfg      config.Console
	table    store.Table
}

func newStand(t *testing.T) *stand {
	t.Helper()
	p, err := oidctest.Start()
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s := &stand{provider: p, log: &waiting.Output{}}
	s.table, _ = newTable(t, t.TempDir())
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux := http.NewServeMux()
		s.Register(mux)
		mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
			v, in := s.Of(r)
			if !in {
				s.Ask(w, r)
				return
			}
			_, _ = fmt.Fprintf(w, "%s %s %s", r.URL.RequestURI(), v.Role, v.Person)
		})
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	p.Redirects(s.server.URL + callbackPath)
	s.cfg = config.Console{
		URL: s.server.URL, SessionLength: 8 * time.Hour, IdleLength: time.Hour,
		OIDC: &config.OIDC{
			Issuer: p.Issuer, ClientID: oidctest.ClientID, ClientSecret: secret.New(oidctest.ClientSecret), UserClaim: "preferred_username", Scopes: []string{"profile", "email"},
			Roles: []config.OIDCRole{
				{Role: "viewer", Claim: "groups", Value: "staff"},
				{Role: "operator", Claim: "groups", Value: "sre"},
				{Role: "auditor", Claim: "email", Value: "ada@shop.example"},
			},
		},
	}
	p.Know("ann", oidctest.Claims{"groups": []string{"staff", "sre"}, "preferred_username": "ann"})
	p.Know("bob", oidctest.Claims{"groups": "staff", "email": "bob@shop.example", "email_verified": true})
	p.Know("eve", oidctest.Claims{"groups": []string{"guests"}, "email": "ada@shop.example"})
	p.Know("ada", oidctest.Claims{"email": "ada@shop.example", "email_verified": true})
	s.open(t)
	return s
}

// open makes the access, as a start of the relay does.
func (s *stand) open(t *testing.T) {
	t.Helper()
	var err error
	s.Access, err = New(t.Context(), s.cfg, s.table, slog.New(slog.NewTextHandler(s.log, nil)))
	require.NoError(t, err)
}

func TestALoginAtTheProvider(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	host, _ := url.Parse(s.provider.Issuer)
	for name, want := range map[string]string{
		"ann": "/ operator ann@" + host.Host + " (by oidc)",
		"bob": "/ viewer bob@shop.example (by oidc)",
		"ada": "/ auditor ada@shop.example (by oidc)",
	} {
		b := newBrowser(t)
		assert.Equal(t, http.StatusUnauthorized, b.visit(s.server.URL).status)
		page := b.logIn(s.server.URL, name)
		assert.Equal(t, want, strings.ReplaceAll(page.text, `"ann@`+host.Host+`"`, "ann@"+host.Host))
		assert.NotContains(t, b.cookies, host.Host+" "+flowCookie, "the login is over")
	}
	require.Len(t, s.Sessions(), 3)
	assert.Equal(t, "sub-of-", s.Sessions()[0].Person.Subject[:7])
	assert.Contains(t, s.log.String(), "a person has logged in to the console")
	assert.NotContains(t, s.log.String(), oidctest.ClientSecret)
}

// A provider may tell the groups by its user's info alone.
func TestAThinToken(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.provider.Thin(true)
	assert.Contains(t, newBrowser(t).logIn(s.server.URL, "ann").text, "/ operator")
}

func TestWhoHasNoRoleIsToldWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	page := b.logIn(s.server.URL, "eve")
	assert.Equal(t, http.StatusForbidden, page.status)
	assert.Contains(t, page.text, "groups has to be one of staff, sre, and your account has guests")
	assert.Contains(t, page.text, "Ask whoever runs this relay")
	assert.Empty(t, s.Sessions(), "an address that nobody verified gives no role")
	assert.Contains(t, s.log.String(), "a login at the console was refused")
	assert.Equal(t, http.StatusUnauthorized, b.visit(s.server.URL).status)
}

// Where a person was going is where a person gets, if it is in the console.
func TestALoginGoesOnToThePage(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	page := b.visit(s.server.URL + "/changes?since=7d&q=%3Cb%3E")
	assert.Contains(t, page.text, `href="/login/provider?next=%2Fchanges%3Fsince%3D7d%26q%3D%253Cb%253E"`)
	form := b.visit(s.server.URL + providerPath + "?next=" + url.QueryEscape("/changes?since=7d"))
	assert.Contains(t, b.visit(form.url.String()+"&name=ann").text, "/changes?since=7d operator")
	long := b.visit(s.server.URL + providerPath + "?next=" + url.QueryEscape("/changes?text="+strings.Repeat("&", 1500)))
	for _, c := range b.cookies {
		assert.Less(t, len(c.Name)+len(c.Value), 4096, "a browser does not keep it")
	}
	assert.Contains(t, b.visit(long.url.String()+"&name=ann").text, "/ operator")
	for _, next := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)", "", "changes", "\x00"} {
		assert.Equal(t, "/", local(next), next)
	}
}

// Whatever is wrong with a token, nobody is let in by it.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for reason, change := range map[string]func(c oidctest.Claims, key *rsa.PrivateKey) any{
		"its nonce differs":     func(c oidctest.Claims, key *rsa.PrivateKey) any { c["nonce"] = "another"; return key },
		"nonce differs":         func(c oidctest.Claims, key *rsa.PrivateKey) any { delete(c, "nonce"); return key },
		"issued by a different": func(c oidctest.Claims, key *rsa.PrivateKey) any { c["iss"] = "https://login.evil.example"; return key },
		"expected audience":     func(c oidctest.Claims, key *rsa.PrivateKey) any { c["aud"] = []string{"another"}; return key },
		"expired": func(c oidctest.Claims, key *rsa.PrivateKey) any {
			c["exp"] = time.Now().Add(-time.Hour).Unix()
			return key
		},
		"failed to verify":             func(oidctest.Claims, *rsa.PrivateKey) any { return other },
		"unexpected signature algorit": func(oidctest.Claims, *rsa.PrivateKey) any { return nil },
	} {
		s.provider.Forge(change)
		b := newBrowser(t)
		page := b.logIn(s.server.URL, "ann")
		assert.Equal(t, http.StatusForbidden, page.status, reason)
		assert.Contains(t, page.text, "could not be verified", reason)
		assert.Contains(t, s.log.String(), reason)
		assert.Empty(t, s.Sessions(), reason)
		s.attempts = attempts{}
	}
	s.provider.Forge(func(_ oidctest.Claims, key *rsa.PrivateKey) any { return key })
	assert.Contains(t, newBrowser(t).logIn(s.server.URL, "ann").text, "/ operator", "a token that was only signed again")
}

// A login ends in the browser that began it, and once.
func TestAForeignOrRepeatedReturn(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	form := b.visit(s.server.URL + providerPath)
	resp := b.request(http.MethodGet, form.url.String()+"&name=ann", true)
	require.NoError(t, resp.Body.Close())
	at, err := resp.Location()
	require.NoError(t, err)
	resp = b.request(http.MethodGet, at.String(), true)
	require.NoError(t, resp.Body.Close())
	back, err := resp.Location()
	require.NoError(t, err)
	require.Equal(t, callbackPath, back.Path)

	for name, visitor := range map[string]func() seen{
		"another browser": func() seen { return newBrowser(t).visit(back.String()) },
		"another state": func() seen {
			copied := *back
			q := copied.Query()
			q.Set("state", "another")
			copied.RawQuery = q.Encode()
			other := newBrowser(t)
			other.visit(s.server.URL + providerPath)
			return other.visit(copied.String())
		},
	} {
		page := visitor()
		assert.Equal(t, http.StatusForbidden, page.status, name)
		assert.Contains(t, page.text, "was not begun in this browser", name)
	}
	flow := *b.cookies[back.Host+" "+flowCookie]
	assert.Contains(t, b.visit(back.String()).text, "/ operator")
	require.Len(t, s.Sessions(), 1)
	assert.Equal(t, http.StatusForbidden, b.visit(back.String()).status, "the login is over")

	b.cookies[back.Host+" "+flowCookie] = &flow // kept by whoever replays the code
	page := b.visit(back.String())
	assert.Equal(t, http.StatusForbidden, page.status)
	assert.Contains(t, s.log.String(), "exchange the code")
	assert.Len(t, s.Sessions(), 1)
}

func TestAProviderThatIsDown(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.provider.Close()
	s.open(t) // the start does not need it
	b := newBrowser(t)
	page := b.visit(s.server.URL + providerPath)
	assert.Equal(t, http.StatusBadGateway, page.status)
	assert.Contains(t, page.text, "cannot ask")
	again, err := oidctest.Start(s.server.URL + callbackPath)
	require.NoError(t, err)
	t.Cleanup(again.Close)
	again.Know("ann", oidctest.Claims{"groups": []string{"sre"}})
	s.Access.provider.cfg.Issuer = again.Issuer // as if it were back at its address
	assert.Contains(t, b.logIn(s.server.URL, "ann").text, "/ operator")
}

// A provider has to name itself as it is configured, and its addresses have to be https.
func TestAnotherProviderAtTheAddress(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for reason, document := range map[string]string{
		"did not match":     `{"issuer":"https://login.evil.example"}`,
		"which is not http": `{"issuer":%q,"authorization_endpoint":"https://a.example/","token_endpoint":"http://a.example/","jwks_uri":"https://a.example/"}`,
	} {
		var fake *httptest.Server
		fake = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.Contains(document, "%q") {
				_, _ = fmt.Fprintf(w, document, fake.URL)
				return
			}
			_, _ = fmt.Fprint(w, document)
		}))
		t.Cleanup(fake.Close)
		s.Access.provider.cfg.Issuer = fake.URL
		assert.Equal(t, http.StatusBadGateway, newBrowser(t).visit(s.server.URL+providerPath).status)
		assert.Contains(t, s.log.String(), reason)
	}
}

// The next login has the role of that time, and a change of the rules ends the sessions.
func TestARoleThatIsLowered(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	assert.Contains(t, b.logIn(s.server.URL, "ann").text, "/ operator")
	s.provider.Know("ann", oidctest.Claims{"groups": []string{"staff"}})
	assert.Contains(t, b.visit(s.server.URL).text, "/ operator")
	assert.Contains(t, b.logIn(s.server.URL, "ann").text, "/ viewer")

	s.open(t)
	assert.Contains(t, b.visit(s.server.URL).text, "/ viewer", "a session outlasts a restart")
	s.cfg.OIDC.Roles[0].Role = "auditor"
	s.open(t)
	assert.Equal(t, http.StatusUnauthorized, b.visit(s.server.URL).status)
}

func TestTooManyLogins(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	assert.Equal(t, http.StatusForbidden, b.visit(s.server.URL+linkPath+"guess").status)
	s.attempts.mu.Lock()
	for from := range s.attempts.of {
		s.attempts.of[from] = rate.NewLimiter(0, 0)
	}
	s.attempts.mu.Unlock()
	assert.Equal(t, http.StatusTooManyRequests, b.visit(s.server.URL+linkPath+"guess").status)
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all attempts
		for i := range attemptsAtOnce + 10 {
			assert.Equal(t, i < attemptsAtOnce, all.allow("192.0.2.1:7"))
		}
		assert.True(t, all.allow("192.0.2.2:7"), "another address pays for it")
		time.Sleep(time.Second)
		assert.True(t, all.allow("192.0.2.1:8"))
		assert.False(t, all.allow("192.0.2.1:9"))
		for i := range 3 * mostAddresses {
			assert.True(t, all.allow(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)))
			assert.LessOrEqual(t, len(all.of), mostAddresses)
		}
	})
}

func TestALinkLogsInOnce(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	b := newBrowser(t)
	path, _ := s.Link(audit.Person{User: "ann", Host: "desk"})
	looked := b.request(http.MethodHead, s.server.URL+path, false)
	require.NoError(t, looked.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, looked.StatusCode)
	assert.Equal(t, "/ operator ann@desk (by link)", b.visit(s.server.URL+path).text)
	page := newBrowser(t).visit(s.server.URL + path)
	assert.Equal(t, http.StatusForbidden, page.status)
	assert.Contains(t, page.text, "used already")
	path, _ = s.Link(audit.Person{User: "ann", Host: "desk"})
	s.open(t)
	page = newBrowser(t).visit(s.server.URL + path)
	assert.Equal(t, http.StatusForbidden, page.status, "a link outlasts a restart")

	// A session's token is made at the login, whatever the browser had before.
	host := strings.TrimPrefix(s.server.URL, "https://")
	fixed := newBrowser(t)
	planted := &http.Cookie{Name: cookieName, Value: base64.RawURLEncoding.EncodeToString([]byte("planted"))}
	fixed.cookies[host+" "+cookieName] = planted
	path, _ = s.Link(audit.Person{User: "eve", Host: "desk"})
	assert.Contains(t, fixed.visit(s.server.URL+path).text, "eve")
	assert.NotEqual(t, planted.Value, fixed.cookies[host+" "+cookieName].Value)
	fixed.cookies[host+" "+cookieName] = planted
	assert.Equal(t, http.StatusUnauthorized, fixed.visit(s.server.URL).status)

	// From another site, such as a message in a web page, the session is there as well.
	path, _ = s.Link(audit.Person{User: "ann", Host: "desk"})
	mail := httptest.NewServer(http.RedirectHandler(s.server.URL+path, http.StatusFound))
	t.Cleanup(mail.Close)
	assert.Equal(t, "/ operator ann@desk (by link)", newBrowser(t).visit(mail.URL).text)

	resp := b.request(http.MethodPost, s.server.URL+"/logout", false)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, b.visit(s.server.URL).status)
}

func TestByWhichNamesTheConsoleIsCalled(t *testing.T) {
	t.Parallel()
	a := &Access{cfg: config.Console{URL: "https://audit.example.com"}}
	for host, want := range map[string]bool{
		"audit.example.com": true, "AUDIT.example.com:443": true, "localhost:9180": true, "[::1]:9180": true, "127.0.0.1": true,
		"rebound.example.com": false, "audit.example.com.evil.example": false, "": false, "10.0.0.1": false,
	} {
		assert.Equal(t, want, a.Admits(&http.Request{Host: host}), host)
	}
	assert.False(t, (&Access{}).Admits(&http.Request{Host: ""}))
}
