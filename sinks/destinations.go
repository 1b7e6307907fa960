package sinks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// Destination is a topic, a subject or a tenant that a sink's template leads to, with the
// origins of its events.
type Destination struct {
	// Kind is topic, subject or tenant.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// ByType is set if Name depends on the type. Name is then the one for a pushed event
	// ("event_log.login") or an audit event ("settings.changed").
	ByType bool `json:"by_type,omitempty"`
	// Origins are environments (PROJECT/ENVIRONMENT), projects as a whole (for audit events),
	// and the relay itself.
	Origins []string `json:"origins"`
}

func (d Destination) String() string {
	text := d.Kind + " " + d.Name
	if d.ByType {
		text += ", another one for each type"
	}
	return text
}

// shownOrigins bounds the origins in a line of text.
const shownOrigins = 3

// OriginsText names the first origins, and counts the others.
func (d Destination) OriginsText() string {
	shown := d.Origins[:min(len(d.Origins), shownOrigins)]
	text := strings.Join(shown, ", ")
	if more := len(d.Origins) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// relayProject is the project of the relay's own audit events.
const relayProject = "auditrelay"

// sample is an event like those of an origin.
type sample struct {
	origin string
	event  relay.Event
}

// samples returns one event of each origin, unless the sink's match leaves it out.
func samples(s config.Sink, environments []config.Environment) (all []sample) {
	add := func(origin, project, environment, kind string) {
		if s.Match == nil || fits(s.Match.Projects, project) && fits(s.Match.Environments, environment) {
			e := relay.Event{ID: "1", Source: relay.SourceOf(project, environment), Type: kind, Project: project, Environment: environment}
			all = append(all, sample{origin, e})
		}
	}
	var projects []string
	for _, e := range environments {
		add(e.Project+"/"+e.Environment, e.Project, e.Environment, "event_log.login")
		if !slices.Contains(projects, e.Project) {
			projects = append(projects, e.Project)
		}
	}
	for _, p := range projects {
		add("project "+p+" as a whole", p, "", "settings.changed")
	}
	add("the relay itself", relayProject, "", "journal.quarantined")
	return all
}

func fits(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return match.ParsePattern(p).Matches(name) })
}

// addressed is a sink that sends events to places with names.
type addressed interface {
	// Address returns the place for e: its kind, which is empty if there is none, and its name.
	Address(e *relay.Event) (kind, name string)
}

// Destinations returns where the template of s sends the events of each environment, of each
// project as a whole, and of the relay itself. It connects to nothing. For sinks without such a
// template it returns none.
func Destinations(s config.Sink, environments []config.Environment, d Deps) ([]Destination, error) {
	if err := s.Complete(); err != nil {
		return nil, fmt.Errorf("open sink %q: %w", s.Name, err)
	}
	sink, err := d.destination(s)
	if err != nil {
		return nil, fmt.Errorf("open sink %q: %w", s.Name, err)
	}
	defer func() { _ = sink.Close() }() // nothing was delivered
	to, can := sink.(addressed)
	if !can {
		return nil, nil
	}
	return destinationsOf(to, samples(s, environments)), nil
}

func destinationsOf(to addressed, from []sample) (found []Destination) {
	for _, s := range from {
		kind, name := to.Address(&s.event)
		if kind == "" {
			return nil
		}
		other := s.event
		other.Type = "streaming.changed"
		_, different := to.Address(&other)
		i := slices.IndexFunc(found, func(d Destination) bool { return d.Name == name })
		if i < 0 {
			i, found = len(found), append(found, Destination{Kind: kind, Name: name, ByType: different != name})
		}
		found[i].Origins = append(found[i].Origins, s.origin)
	}
	return found
}

// reportTo reports where events go, as a finding of [Check].
func reportTo(found []Destination, report func(what, found string)) {
	for _, d := range found {
		report("events to "+d.String(), "from "+d.OriginsText())
	}
}
