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
