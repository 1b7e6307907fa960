package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Options say who may ask.
type Options struct {
	// Token, where it is set, is asked for as "Authorization: Bearer TOKEN",
	// except by /healthz and /readyz: orchestrators know no token, and these
	// tell no more than whether pushes are taken.
	Token secret.Text
	// Pprof serves /debug/pprof/.
	Pprof bool
}

// Guarded asks for the token, if it is set, before next. The comparison takes the same time
// whatever is sent.
func Guarded(token secret.Text, next http.Handler) http.Handler {
	if token.Empty() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || !token.Equal(sent) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="auditrelay"`)
			http.Error(w, "send the token of the configuration, as Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// profiles serves /debug/pprof/: heap, goroutine, allocs and so on.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
