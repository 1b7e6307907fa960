package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

const (
	linkPath     = "/open/"
	loginPath    = "/login"
	providerPath = "/login/provider"
	callbackPath = "/login/callback"

	// cookieName holds the token of a session, and flowCookie a login that has begun. The provider's
	// page sends people back from another site, where no strict cookie is sent along.
	cookieName = "__Host-auditrelay"
	flowCookie = "__Host-auditrelay-login"
	// flowLength is the time for a login.
	flowLength = 10 * time.Minute
	// longestFlow bounds a login that has begun, in bytes: a browser keeps no cookie of more than 4,096.
	longestFlow = 2800
)

//go:embed templates
var files embed.FS

var page = template.Must(template.ParseFS(files, "templates/login.html"))

// Access knows who visits the console. It is safe for concurrent use.
type Access struct {
	cfg      config.Console
	log      *slog.Logger
	sessions *sessions
	provider *provider // nil: none is configured
	attempts attempts
}

// Visitor is who asks.
type Visitor struct {
	Person audit.Person
	Role   Role
	// Session is the id of the session; empty for whoever shows a certificate.
	Session string
}

// New makes an access, with the sessions that the table has.
func New(ctx context.Context, cfg config.Console, table store.Table, log *slog.Logger) (*Access, error) {
	p, err := newProvider(cfg.OIDC, cfg.URL)
	if err != nil {
		return nil, err
	}
	a := &Access{cfg: cfg, log: log, provider: p, sessions: &sessions{
		table: table, length: cfg.SessionLength, idle: cfg.IdleLength, rules: fingerprint(cfg), log: log,
	}}
	if err := a.sessions.load(ctx); err != nil {
		log.Warn("people have to log in to the console again", "error", err)
	}
	return a, nil
}

// SetClientSecret changes the relay's secret at the provider. A nil *Access knows no provider.
func (a *Access) SetClientSecret(to secret.Text) {
	if a != nil && a.provider != nil {
		a.provider.secret.Store(&to)
	}
}

// fingerprint stands for the rules that roles are given by. A session ends when they change.
func fingerprint(c config.Console) string {
	var rules struct {
		Issuer, Client string
		Roles          []config.OIDCRole
	}
	if c.OIDC != nil {
		rules.Issuer, rules.Client, rules.Roles = c.OIDC.Issuer, c.OIDC.ClientID, c.OIDC.Roles
	}
	data, _ := json.Marshal(rules) // has no values that cannot be encoded
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Register adds the pages of logging in and out.
func (a *Access) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) { a.ask(w, r, http.StatusOK) })
	mux.HandleFunc("GET "+linkPath+"{token}", a.limited(a.open))
	mux.HandleFunc("HEAD "+linkPath+"{token}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMethodNotAllowed) // whoever only looks whether it is there does not use it up
	})
	mux.HandleFunc("GET "+providerPath, a.limited(a.toProvider))
	mux.HandleFunc("GET "+callbackPath, a.limited(a.fromProvider))
	mux.HandleFunc("POST /logout", a.logout)
}

// Admits reports whether a request is by a name of the console. A web page can point a name of its
// own at the listener.
func (a *Access) Admits(r *http.Request) bool {
	called := (&url.URL{Host: r.Host}).Hostname()
	u, err := url.Parse(a.cfg.URL)
	return config.IsLoopback(called) || err == nil && a.cfg.URL != "" && strings.EqualFold(called, u.Hostname())
}

// Of is who makes a request, by a session or else by a client certificate; false for nobody who
// has a role. The session is used by it.
func (a *Access) Of(r *http.Request) (Visitor, bool) { return a.visitor(r, true) }

// Still is Of for what a page asks by itself, which is no use of the session: one that nobody looks at
// ends all the same.
func (a *Access) Still(r *http.Request) (Visitor, bool) { return a.visitor(r, false) }

func (a *Access) visitor(r *http.Request, used bool) (Visitor, bool) {
	if token := Cookie(r, cookieName); token != "" {
		if s, in := a.sessions.of(r.Context(), token, used); in {
			return Visitor{s.Person, s.Role, s.ID}, true
		}
	}
	if a.cfg.Certificates == nil {
		return Visitor{}, false
	}
	by, role := byCertificate(a.cfg.Certificates.Roles, r)
	return Visitor{by, role, ""}, role > 0
}

// Link makes the path of a link that logs in its first visitor as an operator: whoever runs commands
// as the relay's own user may do all of it anyway.
func (a *Access) Link(by audit.Person) (path string, until time.Time) {
	by.By = audit.ByLink
	token, until := a.sessions.link(by)
	return linkPath + token, until
}

// Follow takes over the sessions that other relays of a cluster begin and end, until ctx ends.
func (a *Access) Follow(ctx context.Context) { a.sessions.follow(ctx) }

// Sessions lists who is logged in, the newest first.
func (a *Access) Sessions() []Session { return a.sessions.list() }

// Revoke ends the session of an id, or all of them for an empty one, and returns those that were
// ended. They have ended even if the error says that this is not durable.
func (a *Access) Revoke(ctx context.Context, id string) ([]Session, error) {
	return a.sessions.end(ctx, func(k *kept) bool { return id == "" || k.ID == id })
}

// Ask answers with how to log in, for a visitor who is not.
func (a *Access) Ask(w http.ResponseWriter, r *http.Request) { a.ask(w, r, http.StatusUnauthorized) }

// shown is what the page shows.
type shown struct {
	Title  string
	Text   []string
	Onward string // where to go on to at once
	Ways   []way
}

type way struct{ Href, Text string }

func (a *Access) ask(w http.ResponseWriter, r *http.Request, status int) {
	s := shown{Title: "Log in to auditrelay"}
	if status == http.StatusUnauthorized {
		s.Text = append(s.Text, "You are not logged in, or your session has ended.")
	}
	if a.cfg.Certificates != nil {
		if by, role := byCertificate(a.cfg.Certificates.Roles, r); by.User != "" && role == 0 {
			s.Text = append(s.Text, fmt.Sprintf("Your certificate, of %s, gives no role here: ask whoever runs this relay for a rule in console.certificates.roles.", by))
		}
	}
	if a.provider != nil {
		next := ""
		if r.Method == http.MethodGet && r.URL.Path != loginPath {
			next = "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
		}
		s.Ways = append(s.Ways, way{providerPath + next, "Log in at " + a.provider.host()})
	}
	s.Text = append(s.Text, "On the relay's own machine, run 'auditrelay console open', and open the link that it prints.")
	a.show(w, status, s)
}

func (a *Access) show(w http.ResponseWriter, status int, s shown) {
	var body bytes.Buffer
	if err := page.Execute(&body, s); err != nil {
		a.log.Error("a page of the console cannot be shown", "page", s.Title, "error", err)
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the browser has gone
}

func (a *Access) refuse(w http.ResponseWriter, status int, text string) {
	s := shown{Title: "You are not logged in", Text: []string{text}, Ways: []way{{loginPath, "Try again"}}}
	a.show(w, status, s)
}

// open takes a link.
func (a *Access) open(w http.ResponseWriter, r *http.Request) {
	by, ok := a.sessions.open(r.PathValue("token"))
	if !ok {
		a.refuse(w, http.StatusForbidden, "This link was used already, or is older than five minutes. Run 'auditrelay console open' for another one.")
		return
	}
	a.enter(w, r, by, Operator, "/")
}

// toProvider sends a person to the provider.
func (a *Access) toProvider(w http.ResponseWriter, r *http.Request) {
	if a.provider == nil {
		a.ask(w, r, http.StatusNotFound)
		return
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: r.URL.Query().Get("next")}
	to, err := a.provider.authorize(r.Context(), f)
	if err != nil {
		a.log.Error("the provider that people log in at cannot be asked about itself; the next login tries it again", "issuer", a.provider.cfg.Issuer, "error", err)
		a.refuse(w, http.StatusBadGateway, "The relay cannot ask "+a.provider.host()+", where people log in, about itself. Try again in a minute; the relay's log has the reason.")
		return
	}
	kept, _ := json.Marshal(f) // texts can be encoded
	if len(kept) > longestFlow {
		f.Next = ""
		kept, _ = json.Marshal(f) // likewise
	}
	SetCookie(w, flowCookie, string(kept), flowLength, http.SameSiteLaxMode)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// fromProvider takes a person whom the provider sent back.
func (a *Access) fromProvider(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	f, ok := flowOf(r)
	SetCookie(w, flowCookie, "", -1, http.SameSiteLaxMode)
	switch {
	case a.provider == nil:
		a.ask(w, r, http.StatusNotFound)
		return
	case !ok || subtle.ConstantTimeCompare([]byte(f.State), []byte(query.Get("state"))) != 1:
		a.log.Warn("a login at the console was refused: it was not begun in this browser, or too long ago", "from", r.RemoteAddr)
		a.refuse(w, http.StatusForbidden, "This login was not begun in this browser, or longer than ten minutes ago. Try again.")
		return
	case query.Get("error") != "":
		a.log.Warn("a login at the console was refused by the provider", "error", bounded(query.Get("error")), "description", bounded(query.Get("error_description")))
		a.refuse(w, http.StatusForbidden, a.provider.host()+" has not logged you in: "+bounded(query.Get("error"))+".")
		return
	}
	by, role, err := a.provider.identify(r.Context(), f, query.Get("code"))
	if err != nil {
		a.log.Warn("a login at the console was refused", "person", by.String(), "from", r.RemoteAddr, "error", err)
		if errors.Is(err, errNoRole) {
			a.refuse(w, http.StatusForbidden, fmt.Sprintf("%s knows you as %s, but you have no role here. %v. Ask whoever runs this relay, or your groups, for one of these.", a.provider.host(), by.User, err))
			return
		}
		a.refuse(w, http.StatusForbidden, "What "+a.provider.host()+" said of you could not be verified. Try again; the relay's log has the reason.")
		return
	}
	a.enter(w, r, by, role, f.Next)
}

// flowOf is the login that has begun in a browser.
func flowOf(r *http.Request) (f flow, ok bool) {
	text := Cookie(r, flowCookie)
	return f, json.Unmarshal([]byte(text), &f) == nil && f.State != "" && f.Nonce != "" && f.Verifier != ""
}

// enter begins a session. From another site, the browser goes on by a page of the console's own:
// it sends the session's cookie along with none of the requests that another site has begun.
func (a *Access) enter(w http.ResponseWriter, r *http.Request, by audit.Person, role Role, next string) {
	token := a.sessions.begin(r.Context(), by, role)
	a.log.Info("a person has logged in to the console", "person", by.String(), "role", role.String(), "from", r.RemoteAddr)
	SetCookie(w, cookieName, token, a.cfg.SessionLength, http.SameSiteStrictMode)
	next = local(next)
	if by.By == audit.ByLink && r.Header.Get("Sec-Fetch-Site") != "cross-site" {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	a.show(w, http.StatusOK, shown{Title: "You are logged in", Text: []string{by.String() + ", as " + role.String()}, Onward: next})
}

// local is a path of the console, and the first page for anything else.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") {
		return "/"
	}
	return next
}

func (a *Access) logout(w http.ResponseWriter, r *http.Request) {
	if token := Cookie(r, cookieName); token != "" {
		hash := hashOf(token)
		if _, err := a.sessions.end(r.Context(), func(k *kept) bool { return k.Hash == hash }); err != nil {
			a.log.Error("a logout is not durable: the session goes on if the relay restarts before its end", "error", err)
		}
	}
	SetCookie(w, cookieName, "", -1, http.SameSiteStrictMode)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

// SetCookie gives a browser a text to keep, which no script reads; a negative length takes it away.
func SetCookie(w http.ResponseWriter, name, text string, length time.Duration, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: base64.RawURLEncoding.EncodeToString([]byte(text)), Path: "/", MaxAge: int(math.Floor(length.Seconds())),
		Secure: true, HttpOnly: true, SameSite: site,
	})
}

// Cookie is the text that a browser keeps; empty where there is none, or it is damaged.
func Cookie(r *http.Request, name string) string {
	held, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	text, _ := base64.RawURLEncoding.DecodeString(held.Value)
	return string(text)
}
