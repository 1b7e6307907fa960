package streaming

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/management"
)

// Finding is a fault although the API answers.
type Finding string

// The findings.
const (
	// FindingNone: it is as desired, and declared ACTIVE.
	FindingNone Finding = ""
	// FindingNotActive: it is as desired, but not declared ACTIVE.
	FindingNotActive Finding = "not_active"
	// FindingDiffers: it is not as desired, and this is a dry run, or it has
	// just been seen.
	FindingDiffers Finding = "differs"
	// FindingNotTaken: it was set, and the API shows something else. It is set
	// again, at ever longer intervals.
	FindingNotTaken Finding = "not_taken"
)

// Health is the state of one environment's streaming config.
type Health struct {
	Project, Environment string
	// Observed: the relay watches the config, and desires none.
	Observed bool
	// Status is the latest streaming_status from the API; unknown ones pass through.
	// Empty: it declared none yet.
	Status management.StreamingStatus
	// DestinationType is where the API last showed the stream to end; empty: nowhere, or
	// not looked at. Destination is its host name or site.
	DestinationType management.DestinationType
	Destination     string
	// Finding is the fault, and Differs its fields.
	Finding Finding
	Differs []string
	// LastLook is when the API was last read, LastChange when a change was last
	// recorded; zero: not in this run.
	LastLook, LastChange time.Time
	// LastError is the error of the last look; empty: none.
	LastError string
}

// OK reports whether the environment was seen, and nothing is wrong.
func (h Health) OK() bool {
	return h.Finding == FindingNone && h.LastError == "" && !h.LastLook.IsZero()
}

// Health returns the state of each environment that is looked at, in the order of the
// configuration.
func (r *Reconciler) Health() []Health {
	all := make([]Health, 0, len(r.watchers))
	for _, w := range r.watchers {
		w.mu.Lock()
		h := w.health
		w.mu.Unlock()
		h.Differs = slices.Clone(h.Differs)
		all = append(all, h)
	}
	return all
}

// saw notes a successful look.
func (w *watcher) saw(o observation, f Finding, differs []string) {
	w.lastLook, w.lastRequests = o.at, o.requests
	w.mu.Lock()
	before := w.health.Finding
	w.health.LastLook, w.health.Status = o.at, o.status
	w.health.DestinationType, w.health.Destination = o.destination()
	w.health.Finding, w.health.Differs = f, differs
	w.mu.Unlock()
	w.metrics.saw(w.env, o, f, w.observed())
	if f != before && f != FindingNone {
		w.log.Warn("streaming config is not as it should be", "finding", f, "fields", differs, "status", o.status)
	}
}

// changed notes an entry in the trail.
func (w *watcher) changed(e *audit.Entry) {
	w.mu.Lock()
	w.health.LastChange = e.Time
	w.mu.Unlock()
	w.metrics.changes.WithLabelValues(e.Type).Inc()
	var d detail
	if json.Unmarshal(e.Detail, &d) == nil && d.Reading != nil {
		w.log.Info("streaming changed: "+d.Summary, "type", e.Type, "index", e.Index, "cause", d.Cause,
			"direction", d.Direction, "severity", d.Severity, "fields", d.Fields)
		return
	}
	w.log.Info("streaming recorded in the trail", "type", e.Type, "detail", string(e.Detail))
}

// ended notes how a look ended; the same failure is logged once.
func (w *watcher) ended(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.mu.Lock()
	before := w.health.LastError
	w.health.LastError = text
	w.mu.Unlock()
	w.metrics.looked(err)
	switch {
	case isGone(err), errors.Is(err, management.ErrUnreachable): // told of once, for all looks
	case err != nil && before == "":
		w.log.Error("look at the streaming config failed", "error", err)
	case err == nil && before != "":
		w.log.Info("look at the streaming config succeeds again")
	}
}

func isGone(err error) bool {
	var a *management.Absence
	return errors.As(err, &a) && a.WholeEnvironment
}
