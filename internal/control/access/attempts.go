package access

import (
	"net"
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// An address may try to log in this often: so many at once, and one more each second.
	attemptsAtOnce, attemptsPerSecond = 20, 1
	// mostAddresses bounds the addresses that are remembered. Tokens are too long to be guessed; the
	// limit keeps visitors from making the relay, and the provider, work.
	mostAddresses = 1024
)

// attempts limit how often an address tries to log in.
type attempts struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter // guarded by mu
}

func (a *attempts) allow(remote string) bool {
	host, _, _ := net.SplitHostPort(remote)
	address, _ := netip.ParseAddr(host)
	bits := 64 // an IPv6 address is one of a household's many
	if address = address.Unmap().WithZone(""); address.Is4() {
		bits = 32
	}
	from, _ := address.Prefix(bits)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[from] == nil && len(a.of)%mostAddresses == 0 { // at first, and when it is full
		a.of = map[netip.Prefix]*rate.Limiter{}
	}
	if a.of[from] == nil {
		a.of[from] = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
	}
	return a.of[from].Allow()
}

func (a *Access) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.attempts.allow(r.RemoteAddr) {
			w.Header().Set("Retry-After", "10")
			a.refuse(w, http.StatusTooManyRequests, "There were too many logins from your address. Try again in some seconds.")
			return
		}
		next(w, r)
	}
}
