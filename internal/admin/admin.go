// Package admin is the private listener: it answers orchestrators, Prometheus and the
// CLI.
//
//	/healthz  200 while the process serves at all
//	/readyz   200 while pushes are taken, 503 otherwise; one line a check
//	/metrics  Prometheus
//	/status   JSON: what the relay knows of its environments and sinks
//	/tlog/    the audit trail's files, unless configured otherwise
//	/debug/pprof/  profiles, for go tool pprof, if configured
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/auditrelay/auditrelay/config/secret"
)

// probeTimeout bounds one look at everything.
const probeTimeout = 5 * time.Second

// Check is one condition of readiness.
type Check struct {
	Name string
	// Probe returns a short remark, and an error if the relay cannot take
	// pushes because of it.
	Probe func(ctx context.Context) (string, error)
}

// Handler serves the private endpoints. Checks and sections are added while
// the relay starts; until Started it is not ready.
type Handler struct {
	mux   *http.ServeMux
	token secret.Text

	mu       sync.Mutex // guards the fields below
	started  bool
	checks   []Check
	sections map[string]func(ctx context.Context) (any, error)
}

// New makes a handler with the metrics of reg.
func New(reg *prometheus.Registry, o Options) *Handler {
	h := &Handler{mux: http.NewServeMux(), token: o.Token, sections: map[string]func(context.Context) (any, error){}}
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	h.mux.HandleFunc("GET /readyz", h.ready)
	h.mux.Handle("GET /status", Guarded(o.Token, http.HandlerFunc(h.status)))
	metrics := promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, ErrorHandling: promhttp.ContinueOnError})
	h.mux.Handle("GET /metrics", Guarded(o.Token, metrics))
	if o.Pprof {
		h.mux.Handle("GET /debug/pprof/", Guarded(o.Token, profiles()))
	}
	return h
}

// AddCheck adds a condition of readiness.
func (h *Handler) AddCheck(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, c)
}

// Handle serves a pattern of [http.ServeMux], guarded by the token.
func (h *Handler) Handle(pattern string, next http.Handler) {
	h.mux.Handle(pattern, Guarded(h.token, next))
}

// AddStatus adds a section to /status. The result of read is encoded as JSON.
func (h *Handler) AddStatus(name string, read func(ctx context.Context) (any, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sections[name] = read
}

// SetStarted says whether the relay has started and is not stopping.
func (h *Handler) SetStarted(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = yes
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	h.mu.Lock()
	started, checks := h.started, slices.Clone(h.checks)
	h.mu.Unlock()
	status := http.StatusOK
	var lines strings.Builder
	if !started {
		status = http.StatusServiceUnavailable
		lines.WriteString("relay: starting or stopping\n")
	}
	for _, c := range checks {
		remark, err := c.Probe(ctx)
		if err != nil {
			status = http.StatusServiceUnavailable
			remark = "not ready: " + err.Error()
		}
		fmt.Fprintf(&lines, "%s: %s\n", c.Name, remark)
	}
	writeText(w, status, lines.String())
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	h.mu.Lock()
	sections := make(map[string]func(context.Context) (any, error), len(h.sections))
	for name, read := range h.sections {
		sections[name] = read
	}
	h.mu.Unlock()
	out := map[string]any{}
	for name, read := range sections {
		v, err := read(ctx)
		if err != nil {
			v = map[string]string{"error": err.Error()}
		}
		out[name] = v
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(out) // the client has gone, or sees a cut answer
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client has gone
}
