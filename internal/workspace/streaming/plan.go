package streaming

import (
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Shape is a destination as the API shows it on read.
type Shape = management.Shape

// leadsTo reports whether both are the same destination. A rotated password does not make it
// another one; another Datadog key may be another organization's.
func leadsTo(s, other Shape) bool {
	return s.Type == other.Type && strings.EqualFold(s.Hostname, other.Hostname) && s.Username == other.Username && s.Site == other.Site &&
		(s.Type != management.Datadog || s.LastFour == other.LastFour)
}

// Desired is where an environment is to stream to.
type Desired struct {
	Shape
	// Generated describes the relay's own credential, if the destination is the relay; LastFour
	// is empty then. Otherwise it is nil.
	Generated *credentials.State
}

// Action brings an environment to the desired state.
type Action struct {
	// Differs names the fields for which a PUT is needed; it is empty if none is due.
	Differs []string
	// Promote is the last four characters of an own credential at the API, if it is not
	// marked as the current one yet.
	Promote string
	// Drop is the last four characters of a prepared credential that the API does not show.
	Drop string
	// Lost is set if the API shows the relay's own user name, and nothing is known of its
	// credential any more. Every push is refused until a PUT.
	Lost bool
}

// reason tells why a PUT is due.
func (a Action) reason() []string {
	if a.Lost {
		return append(slices.Clone(a.Differs), credentialLost)
	}
	return a.Differs
}

// Plan compares the desired state with the API's, which is nil for no destination at all. It is
// pure.
//
// A secret is compared by its last four characters, so a new one with the same ending is taken
// for the old one. If they are unknown, the secret is assumed to be right. Host names are
// compared without case and a final dot, as in DNS.
func Plan(d Desired, actual *Shape) Action {
	if actual == nil || actual.Type != d.Type {
		return Action{Differs: []string{"destination_type"}}
	}
	var a Action
	differ := func(field string, yes bool) {
		if yes {
			a.Differs = append(a.Differs, field)
		}
	}
	differ("hostname", !strings.EqualFold(strings.TrimSuffix(d.Hostname, "."), strings.TrimSuffix(actual.Hostname, ".")))
	differ("username", d.Username != actual.Username)
	differ("site", d.Site != actual.Site)
	if d.Generated == nil {
		known := d.LastFour != "" && actual.LastFour != ""
		differ("secret", known && d.LastFour != actual.LastFour)
		return a
	}
	if d.Username == actual.Username {
		ours := planGenerated(*d.Generated, actual.LastFour, &a)
		differ("secret", !ours)
		a.Lost = d.Generated.Current == "" && d.Generated.Pending == ""
	}
	return a
}

// planGenerated decides about the own credential, and reports whether the API shows it. It is
// promoted even if other fields differ, since the environment pushes with it.
func planGenerated(s credentials.State, shown string, a *Action) bool {
	switch {
	case shown == "" && s.Current != "":
		return true
	case shown == "":
		return false
	case shown == s.Current:
		a.Drop = s.Pending
		return true
	case shown == s.Pending || slices.Contains(s.Replaced, shown):
		a.Promote = shown
		return true
	}
	return false
}

// desired returns the shape of a config; own describes the relay's credential of the
// environment.
func desired(s *config.Stream, own credentials.State) Desired {
	switch {
	case s.Datadog != nil:
		return Desired{Shape: Shape{Type: management.Datadog, Site: s.Datadog.Site, LastFour: s.Datadog.APIKey.LastFour()}}
	case s.GrafanaLoki != nil:
		l := s.GrafanaLoki
		return Desired{Shape: Shape{
			Type: management.GrafanaLoki, Hostname: l.Hostname, Username: l.Username, LastFour: l.Password.LastFour(),
		}}
	}
	return Desired{
		Shape:     Shape{Type: management.GrafanaLoki, Hostname: s.Relay.Hostname, Username: own.Username},
		Generated: &own,
	}
}
