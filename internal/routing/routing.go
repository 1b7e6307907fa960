// Package routing chooses, redacts and reforms events between a pump and its sink: it hands
// on the events chosen by the sink's configuration (match), without the values and labels
// named by redact, and then in the wanted form (format). sinks.Open puts it there, for live
// events, replays and dead letters alike.
//
// An event left out by match is acknowledged with the rest of its batch, so positions and order
// know nothing of it. Redaction and format change a copy: the journal, other sinks and the dead
// letters have the event as it came, so a changed configuration counts for everything
// delivered or replayed later.
//
// Both fail on the safe side, each on its own. A failed expression delivers the event
// (on_error), as an audit relay must not drop events meant to arrive. A value that cannot be
// redacted for certain is replaced whole. If the body itself cannot be read for certain, it
// goes to the dead letters: withheld values must not leave.
//
// One expression may cost a bounded amount of work, and all of a delivery half of its
// time. After that it delivers events without a look at their bodies.
package routing

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/condition"
	"github.com/auditrelay/auditrelay/internal/json/redact"
	"github.com/auditrelay/auditrelay/internal/wildcard"
	"github.com/auditrelay/auditrelay/relay"
)

// Options are a route's needs beside its configuration.
type Options struct {
	// Sink is the sink's name, for the metrics.
	Sink    string
	Logger  *slog.Logger // required
	Metrics *Metrics     // nil counts nothing
	Form    *Form        // nil: bodies go on as received
}

// Form is another form of the events' bodies: JSON.
type Form struct {
	// Name says it to a person, in a check of the sink.
	Name string
	// Encode makes an event, redacted already, a JSON object. It takes any body, and is
	// called by several goroutines at once. Equal events give equal bytes: a destination may
	// recognise a redelivery by its body.
	Encode func(*relay.Event) []byte
}

// Route is a sink's choice of events, and its redaction.
type Route struct {
	types, projects, environments []wildcard.Pattern

	when   *condition.Condition // nil: always
	strict bool                 // withhold events if when fails for them
	redact *redact.Rules        // nil: nothing
	form   *Form                // nil: as received
	counts counts
	views  sync.Pool // of *view
	doubts doubts
}

// New reads the sections; both may be nil. Errors name the field.
func New(m *config.Match, r *config.Redact, opts Options) (*Route, error) {
	route := &Route{form: opts.Form, counts: opts.Metrics.of(opts.Sink), doubts: doubts{log: opts.Logger}}
	route.views.New = func() any { return &view{} }
	if m != nil {
		route.types, route.projects, route.environments = patterns(m.Types), patterns(m.Projects), patterns(m.Environments)
	}
	if m != nil && m.CEL != "" {
		when, err := condition.Compile(m.CEL)
		if err != nil {
			return nil, fmt.Errorf("match.cel: %w", err)
		}
		route.when, route.strict = when, m.OnError == "withhold"
	}
	if r != nil && len(r.Remove)+len(r.Hash)+len(r.Labels) > 0 {
		rules, err := redact.New(*r)
		if err != nil {
			return nil, fmt.Errorf("redact: %w", err)
		}
		route.redact = rules
	}
	return route, nil
}

func patterns(texts []string) []wildcard.Pattern {
	all := make([]wildcard.Pattern, len(texts))
	for i, text := range texts {
		all[i] = wildcard.Parse(text)
	}
	return all
}

// Wrap puts the route in front of sink, or returns sink itself if the route
// changes nothing. Closing the result closes sink.
func (r *Route) Wrap(sink relay.Sink) relay.Sink {
	if len(r.types)+len(r.projects)+len(r.environments) == 0 && r.when == nil && r.redact == nil && r.form == nil {
		return sink
	}
	return &Sink{route: r, inner: sink}
}

// named reports whether e has one of the wanted types, projects and environments.
func (r *Route) named(e *relay.Event) bool {
	return fits(r.types, e.Type) && fits(r.projects, e.Project) && fits(r.environments, e.Environment)
}

func fits(patterns []wildcard.Pattern, name string) bool {
	for _, p := range patterns {
		if p.Matches(name) {
			return true
		}
	}
	return len(patterns) == 0
}
