package ingest

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/plaintext"
)

const (
	headerAPIKey = "Dd-Api-Key" // canonical form of DD-API-KEY
	queryAPIKey  = "dd-api-key"
)

// claim is the credential in a push: a key, or a user name with a password.
type claim struct{ key, username, password string }

// claimOf finds the credential of a push, and whether there is any. keyInPath is the last
// segment of /v1/input/KEY. Both intakes take both kinds.
func claimOf(r *http.Request, keyInPath string) (c claim, shown bool) {
	c.key = r.Header.Get(headerAPIKey)
	if c.key == "" {
		c.key = keyInPath
	}
	if c.key == "" {
		c.key = queryValue(r.URL.RawQuery, queryAPIKey)
	}
	if c.key != "" {
		return c, true
	}
	c.username, c.password, _ = r.BasicAuth() // empty for another scheme, and so wrong
	return c, r.Header.Get("Authorization") != ""
}

// authenticate finds the environment of a push by its credential. With the error of a
// wrong one, it returns the environment with that user name, if there is one.
func (h *Handler) authenticate(r *http.Request, e *endpoint, keyInPath string) (credentials.Environment, error) {
	c, shown := claimOf(r, keyInPath)
	if !shown && h.anonymous != (credentials.Environment{}) {
		if byBrowser(r) {
			h.metrics.unauthorized.WithLabelValues("", "", "missing").Inc()
			return credentials.Environment{}, errBrowser
		}
		return h.anonymous, nil
	}
	if !shown {
		h.metrics.unauthorized.WithLabelValues("", "", "missing").Inc()
		return credentials.Environment{}, &refusal{status: http.StatusUnauthorized, reason: "unauthorized", hangUp: true, text: "a credential is missing"}
	}
	if env, ok := h.check(c); ok {
		return env, nil
	}
	if env, ok := h.credentials.Former(c.username, c.password); ok {
		h.metrics.unauthorized.WithLabelValues(env.Project, env.Environment, "not_configured").Inc()
		return env, formerly(e)
	}
	owner, _ := h.credentials.Owner(c.username)
	h.metrics.unauthorized.WithLabelValues(owner.Project, owner.Environment, "wrong").Inc()
	return owner, denied(e, h.guesses.failed(r, c, owner))
}

// byBrowser reports whether a web page may have made a request: a browser adds Origin to
// each POST, and newer ones Sec-Fetch-Site. A page of any site, its name pointed at this
// listener or not, could push otherwise. Without a Content-Type, an older browser asks no
// leave of the listener for a request to another site.
func byBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Content-Type") == ""
}

var errBrowser = &refusal{
	status: http.StatusForbidden, reason: "browser", hangUp: true,
	text: "without a credential, pushes of web pages are refused: send a Content-Type, and neither Origin nor Sec-Fetch-Site",
}

func (h *Handler) check(c claim) (credentials.Environment, bool) {
	if c.key != "" {
		return h.credentials.APIKey(c.key)
	}
	return h.credentials.Basic(c.username, c.password)
}

// wait holds an answer back until the client is gone or the server shuts down.
func (h *Handler) wait(r *http.Request, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-h.stopping:
	}
}

// formerly is the answer to the environment's own credential after the environment was
// taken out of the configuration. Its sender has proven who it is, so it is told why, and
// the log names the environment.
func formerly(e *endpoint) *refusal {
	return &refusal{
		status: e.denied, reason: "not_configured", hangUp: true, delay: firstDelay,
		text: "this environment is not in the relay's configuration: put it back under environments, or stream its event log elsewhere",
	}
}

// denied is the late answer to a wrong credential, without the reason. Datadog tells a
// wrong one (403) from a missing one (401).
func denied(e *endpoint, delay time.Duration) *refusal {
	return &refusal{status: e.denied, reason: "unauthorized", logged: true, hangUp: true, delay: delay, text: "the credential is not valid"}
}

// A wrong credential is answered late, and later each time from the same address. A good
// one is looked up first, and never delayed.
const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 5 * time.Second
	// forgiveAfter this long without a mistake, an address is as good as new.
	forgiveAfter = 5 * time.Minute
	// maxGuessers bounds the remembered addresses.
	maxGuessers = 4096
	// guessLogEvery is the least time between two log lines of one address.
	guessLogEvery = time.Minute
)

// guesses remembers the addresses of wrong credentials.
type guesses struct {
	logger *slog.Logger
	now    func() time.Time
	lines  *rate.Limiter // of all addresses together

	mu        sync.Mutex
	addresses map[netip.Addr]*guesser // guarded by mu
}

type guesser struct {
	failures int
	last     time.Time
	logged   time.Time
	quiet    int // failures not logged yet
}

func newGuesses(logger *slog.Logger, now func() time.Time) *guesses {
	return &guesses{logger: logger, now: now, lines: rate.NewLimiter(rate.Every(6*time.Second), 10), addresses: map[netip.Addr]*guesser{}}
}

// failed counts a wrong credential, logs it unless it did so lately, and returns the
// delay of its answer.
func (g *guesses) failed(r *http.Request, c claim, owner credentials.Environment) time.Duration {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // may be missing in a test
	now := g.now()
	g.mu.Lock()
	who := g.of(peer.Addr().Unmap(), now)
	who.failures++
	who.last = now
	delay := delayAfter(who.failures)
	who.quiet++
	loud := (who.logged.IsZero() || now.Sub(who.logged) >= guessLogEvery) && g.lines.AllowN(now, 1)
	failures, quiet := who.failures, who.quiet-1
	if loud {
		who.logged, who.quiet = now, 0
	}
	g.mu.Unlock()
	if loud {
		attrs := append(c.attrs(), "peer", r.RemoteAddr, "project", owner.Project, "environment", owner.Environment,
			"failures", failures, "unlogged_before", quiet)
		if via := lastForwarded(r.Header); via != "" {
			attrs = append(attrs, "forwarded_for", via)
		}
		g.logger.Warn("push refused: its credential is not valid", attrs...)
	}
	return delay
}

// of finds an address, and may forget another one for it. The caller holds mu.
func (g *guesses) of(a netip.Addr, now time.Time) *guesser {
	who := g.addresses[a]
	if who != nil && now.Sub(who.last) < forgiveAfter {
		return who
	}
	if who == nil && len(g.addresses) >= maxGuessers {
		g.forget(now)
	}
	who = &guesser{}
	g.addresses[a] = who
	return who
}

// forget makes room: it removes old failures, or else any.
func (g *guesses) forget(now time.Time) {
	before := len(g.addresses)
	for a, who := range g.addresses {
		if now.Sub(who.last) >= forgiveAfter {
			delete(g.addresses, a)
		}
	}
	for a := range g.addresses {
		if len(g.addresses) < before {
			return
		}
		delete(g.addresses, a)
	}
}

func delayAfter(failures int) time.Duration {
	return min(firstDelay<<min(failures-1, 10), longestDelay)
}

// lastForwarded is the client's address by the word of a proxy before the relay. It is
// the last one, as the client may have invented the others.
func lastForwarded(h http.Header) string {
	values := h.Values("X-Forwarded-For")
	if len(values) == 0 {
		return ""
	}
	list := strings.Split(values[len(values)-1], ",")
	a, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-1]))
	if err != nil {
		return ""
	}
	return a.String()
}

// attrs are the loggable part of a claim: a user name, or the end of a key.
func (c claim) attrs() []any {
	if c.key != "" {
		return []any{"api_key_last_four", plaintext.Line(secret.New(c.key).LastFour(), maxNameText)}
	}
	return []any{"username", plaintext.Line(c.username, maxNameText)}
}

// maxNameText bounds a user name in the log, in characters.
const maxNameText = 64
