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
		return Sink{}, refuse(http.StatusConflict, "sink %q is in the running configuration: remove it from the config first, and restart the relay", name)
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
