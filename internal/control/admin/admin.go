// Package admin is the private listener: it answers orchestrators, Prometheus and the
// CLI.
//
//	/healthz  200 while the process serves at all
//	/readyz   200 while pushes are taken, 503 otherwise; one line per part, or JSON. Reasons
//	          may quote a destination, so they need the token.
//	/metrics  Prometheus
//	/status   JSON: the state of the environments and sinks
//	/openapi.json  a description of all HTTP endpoints, for everybody
//	/tlog/    the audit trail's files, unless configured otherwise
//	/debug/pprof/  profiles, for go tool pprof, if configured
//
// [Heartbeat] tells a dead-man's switch that the relay is ready.
package admin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/auditrelay/auditrelay/config/secret"
)

// probeTimeout bounds one look at everything.
const probeTimeout = 5 * time.Second

// Handler serves the private endpoints. Checks and sections are added while
// the relay starts; until then, and once it stops, it is not ready.
type Handler struct {
	mux       *http.ServeMux
	all       http.Handler                // mux, for programs alone
	token     atomic.Pointer[secret.Text] // of the configuration; never nil
	generated secret.Text                 // of the private pages, without one in the configuration

	mu       sync.Mutex // guards the fields below
	phase    phase
	checks   []Check
	sections map[string]func(ctx context.Context) (any, error)
}

// New makes a handler with the metrics of reg.
func New(reg *prometheus.Registry, o Options) *Handler {
	h := &Handler{mux: http.NewServeMux(), generated: o.Private, sections: map[string]func(context.Context) (any, error){}}
	h.SetToken(o.Token)
	h.all = FromPrograms(o.Hosts, h.mux)
	h.AddStatus("ready", func(ctx context.Context) (any, error) { return h.Readiness(ctx), nil })
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	h.mux.HandleFunc("GET /readyz", h.ready)
	h.mux.HandleFunc("GET /openapi.json", describe)
	h.mux.Handle("GET /status", Guarded(h.private, http.HandlerFunc(h.status)))
	reg.MustRegister(h.readyGauge())
	metrics := promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, ErrorHandling: promhttp.ContinueOnError})
	h.mux.Handle("GET /metrics", Guarded(h.configured, metrics))
	if o.Pprof {
		h.mux.Handle("GET /debug/pprof/", Guarded(h.private, profiles()))
	}
	return h
}

// Handle serves a pattern of [http.ServeMux], guarded by the private token.
func (h *Handler) Handle(pattern string, next http.Handler) {
	h.mux.Handle(pattern, Guarded(h.private, next))
}

// HandleOpen serves a pattern to everybody.
func (h *Handler) HandleOpen(pattern string, next http.Handler) { h.mux.Handle(pattern, next) }

// AddStatus adds a section to /status. The result of read is encoded as JSON.
func (h *Handler) AddStatus(name string, read func(ctx context.Context) (any, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sections[name] = read
}

// Remove removes a section of /status and a part of /readyz, where there are such.
func (h *Handler) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sections, name)
	h.checks = slices.DeleteFunc(slices.Clone(h.checks), func(c Check) bool { return c.Name == name })
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.all.ServeHTTP(w, r)
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, h.Status(r.Context()))
}

// Status reads the named sections, by name, or all where none is named. An unreadable one is
// {"error": "..."}.
func (h *Handler) Status(ctx context.Context, names ...string) map[string]any {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	h.mu.Lock()
	sections := maps.Clone(h.sections)
	h.mu.Unlock()
	if len(names) > 0 {
		maps.DeleteFunc(sections, func(name string, _ func(context.Context) (any, error)) bool { return !slices.Contains(names, name) })
	}
	all := make(map[string]any, len(sections))
	var reading sync.WaitGroup
	var mu sync.Mutex // guards all
	for name, read := range sections {
		reading.Go(func() { // a hanging one delays no other
			v, err := read(ctx)
			if err != nil {
				v = map[string]string{"error": err.Error()}
			}
			mu.Lock()
			defer mu.Unlock()
			all[name] = v
		})
	}
	reading.Wait()
	return all
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client has gone, or sees a cut answer
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client has gone
}

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description (OpenAPI 3.1) of the HTTP endpoints: those of the private listener,
// and those that take pushes. It is made from the types of the answers, and held against real ones.
func OpenAPI() []byte { return bytes.Clone(openAPI) }

func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // the client has gone
}
