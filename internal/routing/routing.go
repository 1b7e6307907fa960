// Package routing chooses, redacts and re-forms events between a pump and its sink: it passes
// on the events that the sink's configuration chooses (match), without the values and labels
// that redact names, and then in the form that is asked for (format). sinks.Open puts it there,
// for live events, replays and dead letters alike.
//
// An event that match leaves out is acknowledged with the rest of its batch, so positions and
// order are not affected. Redaction and format change a copy: the journal, other sinks and the
// dead letters have the event as it came, so a changed configuration applies to everything that
// is delivered or replayed later.
//
// Each of them fails on the safe side. If an expression fails, the event is delivered
// (on_error), since an audit relay must not drop events that are meant to arrive. A value that
// cannot be removed with certainty is replaced as a whole. If the body itself cannot be read
// with certainty, the event goes to the dead letters, because withheld values must not leave.
//
// One expression may cost a bounded amount of work, and all those of a delivery half of its
// time. After that, events are delivered without a look at their bodies, or, with on_error:
// withhold, tried again.
package routing

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// Options are what a route needs besides its configuration.
type Options struct {
	// Sink is the sink's name, for the metrics.
	Sink    string
	Logger  *slog.Logger // required
	Metrics *Metrics     // nil counts nothing
	// OCSF turns the bodies into OCSF objects.
	OCSF bool
	// InOrder is for a sink whose position passes over everything before the events that it has:
	// it gets no events of a delivery in which others are refused, until those are settled.
	InOrder bool
}

// Route is a sink's choice of events, and its redaction.
type Route struct {
	types, projects, environments []match.Pattern

	when   *match.Condition // nil for always
	strict bool             // withhold events for which when fails
	redact *redaction       // nil for nothing
	unsalt *redaction       // with redact
	ocsf   bool             // Options.OCSF
	order  bool             // Options.InOrder
	counts counts
	views  sync.Pool // of *view
	log    *slog.Logger
	doubts rate.Sometimes // log lines about failures of when
}

// quiet is the least time between two log lines about doubts.
const quiet = 10 * time.Minute

// New reads the sections; both may be nil. Errors name the field.
func New(m *config.Match, r *config.Redact, opts Options) (*Route, error) {
	route := &Route{ocsf: opts.OCSF, order: opts.InOrder, counts: opts.Metrics.of(opts.Sink), log: opts.Logger, doubts: rate.Sometimes{Interval: quiet}}
	route.views.New = func() any { return &view{} }
	if m != nil {
		route.types, route.projects, route.environments = patterns(m.Types), patterns(m.Projects), patterns(m.Environments)
	}
	if m != nil && m.CEL != "" {
		when, err := match.Compile(m.CEL)
		if err != nil {
			return nil, fmt.Errorf("match.cel: %w", err)
		}
		route.when, route.strict = when, m.OnError == "withhold"
	}
	if r != nil && len(r.Remove)+len(r.Hash)+len(r.Labels) > 0 {
		rules, err := newRedaction(*r)
		if err != nil {
			return nil, fmt.Errorf("redact: %w", err)
		}
		route.redact = rules
		if route.unsalt, err = newRedaction(config.Redact{Remove: hashing}); err != nil {
			return nil, fmt.Errorf("redact: %w", err) // never: the pointers are fixed
		}
	}
	return route, nil
}

// hashing are the members of an audit event's body with which guesses at what was redacted could
// be held against the hashes in it.
var hashing = []string{"/salt", "/omitted/before_sha256", "/omitted/after_sha256", "/omitted/detail_sha256"}

func patterns(texts []string) []match.Pattern {
	all := make([]match.Pattern, len(texts))
	for i, text := range texts {
		all[i] = match.ParsePattern(text)
	}
	return all
}

// Wrap puts the route in front of sink, or returns sink itself if the route changes nothing.
// Closing the result closes sink.
func (r *Route) Wrap(sink relay.Sink) relay.Sink {
	if len(r.types)+len(r.projects)+len(r.environments) == 0 && r.when == nil && r.redact == nil && !r.ocsf {
		return sink
	}
	return &Sink{route: r, inner: sink}
}

// named reports whether e has one of the types, projects and environments that are chosen.
func (r *Route) named(e *relay.Event) bool {
	return fits(r.types, e.Type) && fits(r.projects, e.Project) && fits(r.environments, e.Environment)
}

func fits(patterns []match.Pattern, name string) bool {
	for _, p := range patterns {
		if p.Matches(name) {
			return true
		}
	}
	return len(patterns) == 0
}

// Metrics count the work of routes, labelled by sink. A nil *Metrics counts nothing.
type Metrics struct{ unmatched, doubtful, withheld *prometheus.CounterVec }

// NewMetrics registers the metrics, or finds those that are registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	unmatched, err1 := Counter(reg, "unmatched_events_total", "Events left out by the sink's match; they count as delivered, too.")
	doubtful, err2 := Counter(reg, "match_errors_total", "Events with a failure of the sink's match.cel; match.on_error decides on them.")
	withheld, err3 := Counter(reg, "withheld_events_total", "Events not redacted, or not chosen, for certain; they are in the dead letters.")
	return &Metrics{unmatched, doubtful, withheld}, errors.Join(err1, err2, err3)
}

// MetricPrefix is how the names of the sinks' metrics begin.
const MetricPrefix = "auditrelay_sink_"

// Counter registers a counter labelled by sink, or finds the one that is registered.
func Counter(reg prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	return Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricPrefix + name, Help: help}, []string{"sink"}))
}

// Register registers a metric, or finds the one of the same name that is registered, since
// several instances of a sink share their metrics.
func Register[C prometheus.Collector](reg prometheus.Registerer, metric C) (C, error) {
	err := reg.Register(metric)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if found, ok := before.ExistingCollector.(C); ok {
			return found, nil
		}
	}
	return metric, err
}

// counts are the counters of one sink; the zero value counts nothing.
type counts struct{ unmatched, doubtful, withheld prometheus.Counter }

func (m *Metrics) of(sink string) counts {
	if m == nil {
		return counts{}
	}
	return counts{m.unmatched.WithLabelValues(sink), m.doubtful.WithLabelValues(sink), m.withheld.WithLabelValues(sink)}
}

func (c counts) add(made choice) {
	if c.unmatched == nil {
		return
	}
	c.unmatched.Add(float64(made.unmatched))
	c.doubtful.Add(float64(made.doubtful))
	for _, f := range made.withheld {
		if relay.IsPermanent(f.Err) {
			c.withheld.Inc()
		}
	}
}
