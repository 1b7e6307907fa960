package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// Check is one part of the relay, as /readyz shows it.
type Check struct {
	Name string
	// Probe returns a remark on the part. A remark about trouble begins with "warning: ".
	// It returns an error only if this part keeps the relay from taking pushes: a 503 has a
	// proxy push to another relay, and no other trouble gets better by that.
	Probe func(ctx context.Context) (string, error)
}

// phase is how far a process has come.
type phase int

const (
	starting phase = iota
	running
	stopping
)

const (
	// warning begins a remark about trouble.
	warning = "warning: "
	// longestReason bounds a line, in characters: a reason may quote a destination's answer.
	longestReason = 1000
)

// Readiness is the JSON form of /readyz.
type Readiness struct {
	// Ready: pushes are taken. The answer's status is 200 then, else 503.
	Ready bool   `json:"ready"`
	Parts []Part `json:"parts"`
}

// Part is one part of the relay.
type Part struct {
	Name string `json:"name"`
	// State is ok, warning or not_ready.
	State string `json:"state"`
	// Reason is for people: why it is so, or how it is.
	Reason string `json:"reason"`
}

// readyGauge is the readiness as a metric, for programs that scrape but do not probe.
func (h *Handler) readyGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auditrelay_ready", Help: "1 while pushes are taken, as /readyz says; else 0.",
	}, func() float64 {
		if h.Readiness(context.Background()).Ready {
			return 1
		}
		return 0
	})
}

// AddCheck adds a part to /readyz, or replaces the one of the same name.
func (h *Handler) AddCheck(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.checks, func(known Check) bool { return known.Name == c.Name }); i >= 0 {
		h.checks[i] = c
		return
	}
	h.checks = append(h.checks, c)
}

// Running marks the process as started.
func (h *Handler) Running() { h.enter(running) }

// Stopping marks the process as stopping, and no longer ready.
func (h *Handler) Stopping() { h.enter(stopping) }

func (h *Handler) enter(p phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase = p
}

// Readiness asks all parts.
func (h *Handler) Readiness(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	h.mu.Lock()
	checks := slices.Clone(h.checks)
	parts := make([]Part, 1+len(checks))
	parts[0] = partOf("process", h.phase.remark(), nil)
	if h.phase != running {
		parts[0].State = "not_ready"
	}
	h.mu.Unlock()
	var asking sync.WaitGroup
	for i, c := range checks {
		asking.Go(func() { // a hanging one delays no other
			remark, err := c.Probe(ctx)
			parts[1+i] = partOf(c.Name, remark, err)
		})
	}
	asking.Wait()
	ready := !slices.ContainsFunc(parts, func(p Part) bool { return p.State == "not_ready" })
	return Readiness{Ready: ready, Parts: parts}
}

func (p phase) remark() string {
	return [...]string{"it is starting, and takes no pushes yet", "running", "it is stopping, and takes no more pushes"}[p]
}

func partOf(name, remark string, err error) Part {
	if err != nil {
		return Part{name, "not_ready", err.Error()}
	}
	if reason, found := strings.CutPrefix(remark, warning); found {
		return Part{name, "warning", reason}
	}
	return Part{name, "ok", remark}
}

// reasons stand in place of the parts' own, which may quote anything: an event's name, or a
// destination's answer with an event in it.
var reasons = map[string]string{
	"ok":        "all is well",
	"warning":   "it needs a look: 'auditrelay status' has the reason, and so has this page with the token of the private pages",
	"not_ready": "it keeps pushes from being taken: 'auditrelay status' has the reason, and so has this page with the token of the private pages",
}

// conceal puts fixed reasons in place of the parts' own. The process's are fixed already.
func (r *Readiness) conceal() {
	for i := range r.Parts {
		if p := &r.Parts[i]; i > 0 {
			p.Reason = reasons[p.State]
		}
	}
}

// String is one line.
func (p Part) String() string {
	prefix := map[string]string{"warning": warning, "not_ready": "not ready: "}[p.State]
	return fmt.Sprintf("%s: %s%s\n", p.Name, prefix, plaintext.Line(p.Reason, longestReason))
}

func (h *Handler) ready(w http.ResponseWriter, r *http.Request) {
	found := h.Readiness(r.Context())
	if !allowed(h.private(), r) {
		found.conceal()
	}
	status := http.StatusOK
	if !found.Ready {
		status = http.StatusServiceUnavailable
	}
	if wantsJSON(r) {
		writeJSON(w, status, found)
		return
	}
	var lines strings.Builder
	for _, p := range found.Parts {
		lines.WriteString(p.String())
	}
	writeText(w, status, lines.String())
}

// wantsJSON reports whether a program asks. A browser names application/json not at all,
// or after text/html.
func wantsJSON(r *http.Request) bool {
	if form := r.URL.Query().Get("format"); form != "" {
		return form == "json"
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/")
}
