package sinks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/wildcard"
	"github.com/auditrelay/auditrelay/relay"
)

// Destination is a topic, a subject or a tenant from a sink's template, and the origins of
// its events.
type Destination struct {
	// Kind is topic, subject or tenant.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// ByType: Name varies with the type. It is shown for pushed events ("event_log.login")
	// or audit events ("settings.changed").
	ByType bool `json:"by_type,omitempty"`
	// Origins are environments (PROJECT/ENVIRONMENT), projects as a whole (audit events),
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

// shownOrigins bounds the origins in a line for people.
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

// sample is an event as one of an origin's may be.
type sample struct {
	origin string
	event  relay.Event
}

// samples are one event of each origin, if the sink's match lets it through.
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
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return wildcard.Parse(p).Matches(name) })
}

// addressed is a sink whose events go to places with names.
type addressed interface {
	// Address returns the place for e: a kind ("" for none) and a name.
	Address(e *relay.Event) (kind, name string)
}

// Destinations says where the events of each origin go by the template of s: of
// each environment, of each project as a whole, and of the relay itself. It
// connects to nothing. Sinks without such a template give none.
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
