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
	"github.com/auditrelay/auditrelay/internal/credentials"
)

// An answer to a wrong credential comes late, and later each time that the same
// address is wrong. A good credential is never delayed: it is looked up first.
const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 5 * time.Second
	// forgiveAfter is how long an address must make no mistake to be as good as new.
	forgiveAfter = 5 * time.Minute
	// maxGuessers bounds the addresses that are remembered.
	maxGuessers = 4096
	// guessLogEvery is how often one address is logged.
	guessLogEvery = time.Minute
)

// guesses remembers who shows wrong credentials.
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
	quiet    int // failures that were not logged
}

func newGuesses(logger *slog.Logger, now func() time.Time) *guesses {
	return &guesses{logger: logger, now: now, lines: rate.NewLimiter(rate.Every(6*time.Second), 10), addresses: map[netip.Addr]*guesser{}}
}

// failed counts a wrong credential, logs it unless that was done lately, and says
// how long its answer is to wait.
func (g *guesses) failed(r *http.Request, c claim, owner credentials.Environment) time.Duration {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // a test's may have none
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

// of finds an address, for which another may be forgotten. The caller holds mu.
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

// forget makes room: of those that were wrong long ago, or else of any.
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

// lastForwarded is the address that a proxy before the relay says it was asked from:
// the last one, as those before it may be the client's invention.
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

// attrs are what the log may hold of a claim: a user name, or the end of a key.
func (c claim) attrs() []any {
	if c.key != "" {
		return []any{"api_key_last_four", harmless(secret.New(c.key).LastFour())}
	}
	return []any{"username", harmless(c.username)}
}

// maxNameText bounds what is logged of a user name, in characters.
const maxNameText = 64

// harmless keeps what a stranger says from filling or steering a log.
func harmless(text string) string {
	text = text[:min(len(text), 4*maxNameText)]
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\uFFFD' || r == '\u2028' || r == '\u2029' {
			return '·'
		}
		return r
	}, text))
	if len(runes) > maxNameText {
		return string(runes[:maxNameText]) + "…"
	}
	return string(runes)
}
