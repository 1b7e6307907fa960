package web

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

const (
	linkPath      = "/open/"
	cookieName    = "__Host-auditrelay"
	linkLength    = 5 * time.Minute
	sessionLength = 8 * time.Hour
	// mostGrants bounds the links, and separately the sessions.
	mostGrants = 100
)

// grant is what a token is good for.
type grant struct {
	person workspace.Person
	until  time.Time
}

// grants are kept by the hashes of their tokens, so that no look-up depends on a token's bytes.
type grants map[[sha256.Size]byte]grant

// sessions are the links that are still open, and who is logged in. They end with the process.
type sessions struct {
	mu    sync.Mutex
	links grants // guarded by mu
	live  grants // guarded by mu
}

func newSessions() *sessions { return &sessions{links: grants{}, live: grants{}} }

// add makes a token for a grant. At the bound, the grant that ends first gives way.
func (g grants) add(by workspace.Person, length time.Duration) (token string, until time.Time) {
	now := time.Now()
	var first [sha256.Size]byte
	var ends time.Time
	for hash, held := range g {
		if now.After(held.until) {
			delete(g, hash)
		} else if ends.IsZero() || held.until.Before(ends) {
			first, ends = hash, held.until
		}
	}
	if len(g) >= mostGrants {
		delete(g, first)
	}
	token, until = rand.Text(), now.Add(length)
	g[sha256.Sum256([]byte(token))] = grant{by, until}
	return token, until
}

func (g grants) of(token string) (workspace.Person, bool) {
	held, found := g[sha256.Sum256([]byte(token))]
	return held.person, found && time.Now().Before(held.until)
}

func (s *sessions) link(by workspace.Person) (token string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links.add(by, linkLength)
}

// begin takes a link's token, which is then good no more, for that of a session.
func (s *sessions) begin(link string) (token string, by workspace.Person, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by, ok = s.links.of(link); !ok {
		return "", by, false
	}
	delete(s.links, sha256.Sum256([]byte(link)))
	token, _ = s.live.add(by, sessionLength)
	return token, by, true
}

// person says who asks. Whoever has come by a link from this machine is an operator.
func (s *sessions) person(r *http.Request) (workspace.Person, access.Role, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return workspace.Person{}, 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	by, ok := s.live.of(cookie.Value)
	if !ok {
		return workspace.Person{}, 0, false
	}
	return by, access.Operator, true
}

func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, sha256.Sum256([]byte(cookie.Value)))
	}
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	token, by, ok := c.sessions.begin(r.PathValue("token"))
	if !ok {
		c.fail(w, &asked{ctx: r.Context(), request: r}, &problem{http.StatusForbidden, "This link was used already, or is older than five minutes.", "Run 'auditrelay console open' for another one."})
		return
	}
	c.opts.Logger.Info("a person has logged in to the console", "user", by.User, "host", by.Host)
	http.SetCookie(w, newCookie(cookieName, token, int(sessionLength/time.Second)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(r)
	http.SetCookie(w, newCookie(cookieName, "", -1))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// newCookie makes a cookie for this host alone, which no script reads and no other site sends.
func newCookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}
