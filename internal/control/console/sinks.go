package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay"
)

// Sink describes a sink with a configuration, a position or dead letters.
type Sink struct {
	Name string `json:"name"`
	// Kind is the destination's, such as "kafka"; empty for an unconfigured sink.
	Kind string `json:"kind,omitempty"`
	// Configured: the running relay delivers to it.
	Configured bool `json:"configured"`
	// LagEvents is about how many events the sink has not acknowledged; nil where it is not
	// known. OldestUnacknowledged is when the oldest of them was committed, LagSeconds how long
	// ago; zero without any.
	LagEvents            *int64    `json:"lag_events,omitempty"`
	LagSeconds           float64   `json:"lag_seconds"`
	OldestUnacknowledged time.Time `json:"oldest_unacknowledged,omitzero"`
	// Delivery is of this process; nil for an unconfigured sink.
	*relay.Delivery
	// DeadLetters is their number.
	DeadLetters uint64 `json:"dead_letters"`
	// Position is nil if it has none.
	Position *journal.SinkPosition `json:"position,omitempty"`
}

// Sinks brings together the configured sinks, those with a position, and those with
// dead letters.
func (s *Server) Sinks(ctx context.Context) ([]Sink, error) {
	positions, err := s.opts.Journal.Sinks(ctx)
	if err != nil {
		return nil, err
	}
	letters, err := s.opts.Letters.Usage(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Sink{}
	named := func(name string) *Sink {
		if byName[name] == nil {
			byName[name] = &Sink{Name: name}
		}
		return byName[name]
	}
	for _, c := range s.opts.Sinks() {
		sink, delivery := named(c.Name), s.opts.Delivery(c.Name)
		sink.Configured, sink.Kind, sink.Delivery = true, c.Kind(), &delivery
	}
	for i := range positions {
		named(positions[i].Sink).setPosition(&positions[i], s.opts.Journal)
	}
	for name, usage := range letters {
		named(name).DeadLetters = usage.Letters
	}
	list := make([]Sink, 0, len(byName))
	for _, sink := range byName {
		list = append(list, *sink)
	}
	slices.SortFunc(list, func(a, b Sink) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// setPosition also tells how far behind the sink is: by the journal's account of events, or
// for a sink of another relay by its records.
func (s *Sink) setPosition(at *journal.SinkPosition, j *journal.Set) {
	s.Position, s.OldestUnacknowledged = at, at.Oldest
	if b, reading := j.Backlog(s.Name); reading && s.Configured {
		s.LagEvents = new(b.Events)
		if b.Events > 0 {
			s.OldestUnacknowledged = b.Oldest
		}
	}
	if !s.OldestUnacknowledged.IsZero() {
		s.LagSeconds = max(0, time.Since(s.OldestUnacknowledged).Seconds())
	}
}

// OfSink names a sink.
type OfSink struct {
	Name string `json:"name"`
}

func (s *Server) sinkHistory(_ context.Context, which OfSink) (relay.History, error) {
	if _, err := s.sink(which.Name); err != nil {
		return relay.History{}, err
	}
	return s.opts.History(which.Name), nil
}

// retire removes a position, and returns it.
func (s *Server) retire(ctx context.Context, which OfSink) (Sink, error) {
	name := which.Name
	if _, err := s.sink(name); err == nil {
		return Sink{}, refuse(http.StatusConflict, "sink %q is in the running configuration: remove it from the config first, and run 'auditrelay reload', or in a cluster restart the relays", name)
	}
	list, err := s.Sinks(ctx)
	if err != nil {
		return Sink{}, err
	}
	i := slices.IndexFunc(list, func(k Sink) bool { return k.Name == name })
	if i < 0 || list[i].Position == nil {
		return Sink{}, refuse(http.StatusNotFound, "the journal keeps no position of a sink %q; 'auditrelay sinks list' shows all it keeps", name)
	}
	if list[i].Position.Reading {
		return Sink{}, refuse(http.StatusConflict, "the relay reads the journal for sink %q right now: stop that first", name)
	}
	// A crash between the two leaves an entry of the intent; the command, given again,
	// makes another.
	if err := s.record(ctx, Loss{Type: "sink.retired", Sink: name, Detail: list[i]}); err != nil {
		return Sink{}, err
	}
	err = s.opts.Journal.Retire(ctx, name)
	if errors.Is(err, journal.ErrNoPosition) {
		err = nil // somebody else was as quick
	}
	if err == nil {
		s.opts.Logger.Warn("sink is retired; the journal keeps nothing for it any more",
			"sink", name, "pending_records", list[i].Position.Pending, "dead_letters", list[i].DeadLetters)
	}
	return list[i], err
}

// acceptDamage lets sinks pass over the damage. A crash between the two steps leaves an entry
// of the intent; the command, given again, makes another.
func (s *Server) acceptDamage(ctx context.Context, _ none) (journal.Damage, error) {
	if was := s.opts.Quarantine.Damage(); was.Records > 0 {
		if err := s.record(ctx, Loss{Type: "journal.damage_accepted", Detail: was}); err != nil {
			return was, err
		}
	}
	was, err := s.opts.Quarantine.Accept(ctx)
	if err == nil {
		s.opts.Logger.Warn("damage of the journal is accepted; sinks pass over it", "damaged", was.Records, "first_position", was.First)
	}
	return was, err
}

// Loss is what a person has the relay do: events will not reach a sink or reach it again, a credential
// no longer pushes, somebody is logged out. Promise 2 wants the events accounted for all the same.
type Loss struct {
	Type                 string // such as "deadletters.discarded"
	Project, Environment string // of the events; empty if they are of several
	Sink                 string // empty if it is every sink
	Subject              string // empty for the sink
	Person               workspace.Person
	Detail               any // encoded as a JSON object
}

// noProject stands in the trail for entries without a single project; no slug is so.
const noProject = "-"

// Entry is the entry of the trail that accounts for the loss. Its detail has the person as one more
// member.
func (l Loss) Entry() (audit.Entry, error) {
	subject := cmp.Or(l.Subject, "journal")
	if l.Sink != "" {
		subject = "sinks/" + l.Sink
	}
	e := audit.Entry{Type: l.Type, Project: cmp.Or(l.Project, noProject), Environment: l.Environment, Subject: subject, Time: time.Now()}
	raw, err := json.Marshal(l.Detail)
	members := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &members)
	}
	if err == nil {
		members["person"], err = json.Marshal(l.Person)
	}
	if err == nil {
		e.Detail, err = json.Marshal(members)
	}
	if err != nil {
		return e, fmt.Errorf("encode the audit entry: %w", err)
	}
	return e, nil
}

// laggingAfter is the age of a sink's oldest undelivered event from which on the sink lags.
const laggingAfter = 5 * time.Minute

// Condition is how the deliveries to a sink are, as a verb.
type Condition string

// The conditions.
const (
	Delivers  Condition = "delivers"
	Lags      Condition = "lags" // it delivers, but its oldest event has waited for long
	Fails     Condition = "fails"
	LeftOver  Condition = "left over" // it is not configured
	Abandoned Condition = "abandoned" // likewise, and events are kept for it
	Unplaced  Condition = "unknown"   // its position is not known
)

// Condition judges the deliveries.
func (s *Sink) Condition() Condition {
	lag := time.Duration(s.LagSeconds * float64(time.Second))
	switch {
	case s.Position != nil && s.Position.Unknown != "":
		return Unplaced
	case !s.Configured && s.Position != nil && s.Position.Pending > 0:
		return Abandoned
	case !s.Configured:
		return LeftOver
	case s.Delivery != nil && !s.FailingSince.IsZero():
		return Fails
	case lag >= laggingAfter:
		return Lags
	}
	return Delivers
}

// Trouble is a clause about a sink in trouble, else empty.
func (s *Sink) Trouble() string {
	switch c := s.Condition(); {
	case c == Unplaced:
		return "has no known position"
	case c == Abandoned:
		return "is not configured, and holds events"
	case c == Lags, c == Fails:
		return string(c)
	case s.DeadLetters == 1:
		return "has 1 dead letter"
	case s.DeadLetters > 0:
		return fmt.Sprintf("has %d dead letters", s.DeadLetters)
	}
	return ""
}

// Remedies are what to do about a sink in trouble, a command or a sentence each.
func (s *Sink) Remedies() (all []string) {
	switch s.Condition() {
	case Fails:
		all = append(all, s.failingRemedy())
	case Abandoned:
		all = append(all, "auditrelay sinks retire "+s.Name+", unless another configuration brings it back")
	case Lags:
		all = append(all, "see that the destination takes as much as arrives, or raise the sink's parallel and batch_events")
	}
	if s.DeadLetters > 0 && s.Configured {
		all = append(all, "auditrelay deadletters list --sink "+s.Name)
	}
	return all
}

// failingRemedy is what mends a failing sink, by the class of its last error. The relay
// tries again by itself, and loses nothing meanwhile.
func (s *Sink) failingRemedy() string {
	try := "auditrelay sinks check " + s.Name + " tries it"
	switch s.LastErrorClass {
	case relay.ClassAuthentication:
		return "correct the credential of sinks." + s.Name + " in the configuration, or its rights at the destination; " + try
	case relay.ClassConnection, relay.ClassTimeout:
		return "see that the destination runs and can be reached from here (name, network, TLS); " + try
	case relay.ClassThrottled:
		return "raise the destination's limit, or lower the sink's batch_events; it goes on by itself"
	case relay.ClassRefused:
		return "mend what the destination complains of, there or in the configuration; " + try
	}
	return "mend what its last error names; " + try
}
