package streaming

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Finding is what is wrong while the API answers.
type Finding string

// The findings.
const (
	// FindingNone means that the config is as desired, and declared ACTIVE.
	FindingNone Finding = ""
	// FindingNotActive means that it is as desired, but not declared ACTIVE.
	FindingNotActive Finding = "not_active"
	// FindingDiffers means that it is not as desired, and that this is a dry run, or it has
	// just been seen.
	FindingDiffers Finding = "differs"
	// FindingNotTaken means that it was set, and the API shows something else. It is set again,
	// at ever longer intervals.
	FindingNotTaken Finding = "not_taken"
	// FindingRefused means that it is not as desired, and the API refuses to set it. It is
	// tried again at ever longer intervals, and at once when the API shows another config.
	FindingRefused Finding = "refused"
	// FindingAbsent means that the environment does not exist, according to the API.
	FindingAbsent Finding = "absent"
)

// Health is the state of one environment's streaming config.
type Health struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	// Mode is config.ModeEnforce or config.ModeObserve. Observed is set if the relay only
	// watches the config, and desires none.
	Mode     string `json:"mode"`
	Observed bool   `json:"observed"`
	// Status is the latest streaming_status from the API; unknown ones are passed through. It
	// is empty if the API has declared none yet.
	Status management.StreamingStatus `json:"status"`
	// DestinationType is where the stream ended when the API last showed it; it is empty if
	// that was nowhere, or was not looked at. Destination is its host name or site.
	DestinationType management.DestinationType `json:"destination_type"`
	Destination     string                     `json:"destination"`
	// Finding is what is wrong, Differs names the fields, and Advice is a sentence for the
	// person who can correct it; it is empty if nobody has to.
	Finding Finding  `json:"finding"`
	Differs []string `json:"differs,omitempty"`
	Advice  string   `json:"advice,omitempty"`
	// Fight is set while somebody else sets the config again and again.
	Fight *Fight `json:"fight"`
	// LastLook is when the API was last read, LastChange when a change was last recorded; zero
	// if not in this run.
	LastLook   time.Time `json:"last_look,omitzero"`
	LastChange time.Time `json:"last_change,omitzero"`
	// LastError is the error of the last look; empty if there was none.
	LastError string `json:"last_error,omitempty"`
}

// OK reports whether the environment was seen, and nothing is wrong.
func (h Health) OK() bool {
	return h.Finding == FindingNone && h.Fight == nil && h.LastError == "" && !h.LastLook.IsZero()
}

// Health returns the state of each watched environment, in the order of the
// configuration.
func (r *Reconciler) Health() []Health {
	all := make([]Health, 0, len(r.watchers))
	for _, w := range r.watchers {
		w.mu.Lock()
		h := w.health
		w.mu.Unlock()
		h.Differs = slices.Clone(h.Differs)
		if h.Fight != nil {
			f := *h.Fight
			h.Fight, h.Advice = &f, fightAdvice
		}
		all = append(all, h)
	}
	return all
}

// saw records a successful look.
func (w *watcher) saw(o observation, f Finding, differs []string) {
	w.untold = w.atStart(f)
	w.lastLook = workspace.Agreed{At: o.at, Requests: o.requests}
	if !w.untold {
		w.show(o, f, differs)
	}
}

// show tells what a look saw.
func (w *watcher) show(o observation, f Finding, differs []string) {
	w.untold = false
	advice := w.advice(f, o.status)
	w.mu.Lock()
	before := w.health.Finding
	w.health.LastLook, w.health.Status = o.at, o.status
	w.health.DestinationType, w.health.Destination = o.destination()
	w.health.Finding, w.health.Differs, w.health.Advice = f, differs, advice
	w.mu.Unlock()
	w.metrics.saw(w.env, o, f, w.observed())
	switch {
	case f == before:
	case f != FindingNone:
		w.log.Warn("streaming config is not as it should be", "finding", f, "fields", differs, "status", o.status, "advice", advice)
	default:
		w.log.Info("streaming config is as it should be now", "was", before)
	}
}

// absent records that the environment does not exist.
func (w *watcher) absent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.health.Status, w.health.DestinationType, w.health.Destination, w.health.Differs = "", "", "", nil
	w.health.Finding, w.health.Advice = FindingAbsent, w.advice(FindingAbsent, "")
	w.metrics.absent(w.env, w.observed())
}

// fights records a fight, nil for none, and reports whether it is new.
func (w *watcher) fights(f *Fight) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.health.Fight == nil && f != nil
	w.health.Fight = f
	w.metrics.fights(w.env, f != nil)
	return news
}

// fought is the present fight.
func (w *watcher) fought() Fight {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.health.Fight == nil {
		return Fight{}
	}
	return *w.health.Fight
}

// changed records an entry in the trail, with its detail.
func (w *watcher) changed(e *audit.Entry, d detail) {
	w.mu.Lock()
	w.health.LastChange = e.Time
	w.mu.Unlock()
	w.metrics.changes.WithLabelValues(w.env.Project, w.env.Environment, e.Type, d.Cause).Inc()
	if d.Reading != nil {
		w.log.Info("streaming changed: "+d.Summary, "type", e.Type, "index", e.Index, "cause", d.Cause,
			"direction", d.Direction, "severity", d.Severity, "fields", d.Fields)
		return
	}
	w.log.Info("streaming recorded in the trail", "type", e.Type, "detail", string(e.Detail))
}

// ended records how a look ended. A failure that lasts is logged at growing intervals.
func (w *watcher) ended(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.mu.Lock()
	w.health.LastError = text
	w.mu.Unlock()
	w.metrics.looked(err)
	switch {
	case management.GoneBy(err) != nil, errors.Is(err, management.ErrUnreachable): // logged once, for all looks
	case errors.Is(err, errTrail) && !errors.As(err, new(*management.APIError)): // it says nothing about the config
		if w.trailFailing.Again("") {
			w.log.Warn("a look at the streaming config could not use the audit trail; the next looks try again", append(w.trailFailing.Fields(), "error", err)...)
		}
		return
	case err != nil:
		began := !w.failing.Lasts()
		if w.failing.Again(management.CauseOf(err)) && (!began || w.refusal == nil) { // otherwise it is reported as a finding
			w.log.Error("look at the streaming config failed", append(w.failing.Fields(), "error", err)...)
		}
	default:
		if fields, was := w.failing.Over(); was {
			w.log.Info("look at the streaming config succeeds again", fields...)
		}
	}
	w.trailFailing.Over()
}

// refusal is a PUT that the API refused. It would refuse a repetition too, until a person acts.
type refusal struct {
	of     string // the key of the observation before it
	advice string
}

// forGood reports whether the API refused a PUT because of its config. It would then refuse a
// repetition too.
func forGood(err error) bool {
	var api *management.APIError
	passing := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}
	return errors.As(err, &api) && api.Refused() && !slices.Contains(passing, api.Status) && !errors.Is(err, management.ErrUnreachable)
}

// key tells observations of different configs apart.
func (o *observation) key() string { return workspace.HashOf(o.raw) + workspace.HashOf(o.second) }

// refusedAdvice is the advice after a refused PUT. No operation of the API
// creates a config or removes one, and the real service's PUT needs one of its type.
func (w *watcher) refusedAdvice(err error) string {
	name, t := w.environment(), w.types[0]
	create := fmt.Sprintf("create a %s destination for its event log in the dashboard, with any host name, user name and secret, and enable it: "+
		"the relay then sets the right ones by itself", t)
	switch shown := w.newest.shape; {
	case shown == nil:
		return fmt.Sprintf("%s has no streaming config, and the API refuses to make one (%s): %s", name, management.CauseOf(err), create)
	case shown.Type != t:
		return fmt.Sprintf("%s streams to %s, and the API refuses to replace it by %s (%s): remove that destination in the dashboard, and %s",
			name, shown.Type, t, management.CauseOf(err), create)
	}
	return fmt.Sprintf("the API refuses the config of %s (%s): correct its stream in the configuration, or the rights of the management key",
		name, management.CauseOf(err))
}

// advice returns advice for a person, by finding; it is empty if there is nothing to do.
func (w *watcher) advice(f Finding, status management.StreamingStatus) string {
	name := w.environment()
	switch f {
	case FindingNotActive:
		if status == management.StatusPending {
			return fmt.Sprintf("the event log of %s is %s: the provider has not begun to send yet, and does so by itself; "+
				"if that lasts for more than a few minutes, ask its support", name, status)
		}
		return fmt.Sprintf("the event log of %s is %s: enable it in the dashboard, as the API has no operation for it; "+
			"events of the time in between are never sent", name, orNoStatus(status))
	case FindingRefused:
		return w.refusal.advice
	case FindingAbsent:
		return fmt.Sprintf("the API knows no environment %s: correct its project and environment slugs in the configuration, or remove it there", name)
	case FindingDiffers:
		if w.mode() == config.ModeObserve {
			return fmt.Sprintf("compare by `auditrelay streaming plan %s`; `auditrelay streaming apply %s` sets the config once, mode: enforce keeps it so", name, name)
		}
	case FindingNotTaken:
		return fmt.Sprintf("the API took the config of %s and shows another one: find out who changes it, another relay or a proxy", name)
	}
	return ""
}

func orNoStatus(s management.StreamingStatus) management.StreamingStatus {
	if s == "" {
		return "without a status"
	}
	return s
}
