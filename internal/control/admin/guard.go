package admin

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// Options say who may ask.
type Options struct {
	// Token, where it is set, is asked for as "Authorization: Bearer TOKEN" by /metrics and
	// all private pages. Orchestrators know no token, so /healthz and /readyz answer without
	// it; then they tell no more than whether pushes are taken.
	Token secret.Text
	// Private is asked for by the private pages, where Token is not set: everything except
	// /healthz, /readyz and /metrics. It is made at the first start (see [FileToken]).
	// Neither set leaves the private pages open, for tests.
	Private secret.Text
	// Hosts are the names by which the listener may be called, apart from addresses and
	// localhost.
	Hosts []string
	// Pprof serves /debug/pprof/.
	Pprof bool
}

// private is the token for the private pages at present.
func (h *Handler) private() secret.Text {
	if token := h.configured(); !token.Empty() {
		return token
	}
	return h.generated
}

func (h *Handler) configured() secret.Text { return *h.token.Load() }

// SetToken replaces [Options.Token].
func (h *Handler) SetToken(token secret.Text) { h.token.Store(&token) }

// FileToken reads the token in a file, and makes one where there is none. Whoever may read
// the file, the relay's user, may ask. A crash before the file is in its place leaves none,
// and the next start makes another. With an error, the token is good for this process
// alone: a full or damaged disk must not keep a relay from starting.
func FileToken(path string) (secret.Text, error) {
	text, err := durable.ReadFile(path)
	if token := strings.TrimSpace(string(text)); err == nil && len(token) >= minToken && !strings.ContainsFunc(token, unsendable) {
		return secret.New(token), nil
	}
	token := rand.Text()
	if err := durable.WriteFile(path, []byte(token+"\n")); err != nil {
		return secret.New(token), fmt.Errorf("make the token of the private pages, in place of an unreadable one or none: %w", err)
	}
	return secret.New(token), nil
}

// minToken keeps what damage has left of a token from being one.
const minToken = 16

// unsendable reports whether no header of a request can carry a character. Damage may have
// made it, and then nobody could show the token.
func unsendable(r rune) bool { return r <= ' ' || r > '~' }

// FromPrograms refuses requests that a web page may have made. Its own site may make any
// name point at this listener (DNS rebinding): so a name in Host must be localhost or one of
// hosts. An address needs no check, since no other site has it.
func FromPrograms(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch site := r.Header.Get("Sec-Fetch-Site"); {
		case !knownHost(r.Host, hosts):
			http.Error(w, "this listener is not known by the name in Host: use its address, or name it in admin.hosts", http.StatusForbidden)
		case site != "" && site != "same-origin" && site != "none", !sameOrigin(r):
			http.Error(w, "requests by pages of other sites are refused", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// knownHost reports whether a request may name this listener so. A request of HTTP/1.0 may
// name nothing.
func knownHost(host string, hosts []string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "" || strings.EqualFold(name, "localhost") {
		return true
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// sameOrigin reports whether a request's Origin, if it has one, is this listener.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	at, err := url.Parse(origin)
	return err == nil && at.Host != "" && strings.EqualFold(at.Host, r.Host)
}

// allowed reports whether a request shows the token, or none is asked for. The comparison
// takes the same time whatever is sent.
func allowed(token secret.Text, r *http.Request) bool {
	scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token.Empty() || strings.EqualFold(scheme, "Bearer") && token.Equal(sent)
}

// Guarded asks for the token as it is then, if one is set, before next.
func Guarded(token func() secret.Text, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(token(), r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="auditrelay"`)
			http.Error(w, "send Authorization: Bearer TOKEN, with the token of the configuration, or else the one in DATA_DIR/"+TokenFile, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TokenFile is the generated token's file, in the data directory.
const TokenFile = "admin.token"

// profiles serves /debug/pprof/: heap, goroutine, allocs and so on.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
