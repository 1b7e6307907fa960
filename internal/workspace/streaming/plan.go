package streaming

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// Preview is the streaming config of an environment, as it is and as it would be.
type Preview struct {
	Project     string    `json:"project"`
	Environment string    `json:"environment"`
	Mode        string    `json:"mode"` // as in [Health]
	At          time.Time `json:"at"`   // when the API was read
	// Status is the streaming_status; a PUT does not ask for one.
	Status management.StreamingStatus `json:"status"`
	// Differs is set if a PUT is due.
	Differs bool    `json:"differs"`
	Fields  []Field `json:"fields"`
	// Finding and Advice are as in [Health].
	Finding Finding `json:"finding"`
	Advice  string  `json:"advice,omitempty"`
}

// Field is a member of the config. A secret is shown by its last four characters.
type Field struct {
	Name    string `json:"name"`
	Is      string `json:"is"` // empty: there is none
	WouldBe string `json:"would_be"`
	Differs bool   `json:"differs"`
}

// newSecret stands for a credential that is still to be generated.
const newSecret = "(a new one)"

// Plan reads an environment's streaming config, and compares it with the desired one. It
// changes nothing, and records nothing.
func (r *Reconciler) Plan(ctx context.Context, env credentials.Environment) (Preview, error) {
	w, err := r.desiring(env)
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	err = w.forPerson(ctx, func(ctx context.Context) (err error) {
		p, err = w.preview(ctx)
		return err
	})
	if err != nil {
		return Preview{}, fmt.Errorf("plan the streaming config of %s: %w", env, err)
	}
	return p, nil
}

func (w *watcher) preview(ctx context.Context) (Preview, error) {
	seen, err := w.observe(ctx)
	if err != nil {
		return Preview{}, err
	}
	wanted, err := w.desired()
	if err != nil {
		return Preview{}, err
	}
	action := Plan(wanted, seen.shape)
	finding := w.finding(seen, action)
	return Preview{
		Project: w.env.Project, Environment: w.env.Environment, Mode: w.mode(), At: seen.at, Status: seen.status,
		Differs: len(action.Differs) > 0, Fields: fieldsOf(wanted, seen.shape, action),
		Finding: finding, Advice: w.advice(finding, seen.status),
	}, nil
}

// fieldsOf lists the members of both configs.
func fieldsOf(d Desired, shown *Shape, a Action) []Field {
	is := Shape{}
	if shown != nil {
		is = *shown
	}
	another := slices.Contains(a.Differs, "destination_type")
	var fields []Field
	add := func(name, was, wouldBe string) {
		if was != "" || wouldBe != "" {
			fields = append(fields, Field{Name: name, Is: was, WouldBe: wouldBe, Differs: another || slices.Contains(a.Differs, name) || wouldBe == newSecret})
		}
	}
	add("destination_type", string(is.Type), string(d.Type))
	add("hostname", is.Hostname, d.Hostname)
	add("username", is.Username, d.Username)
	add("site", is.Site, d.Site)
	add("secret", ending(is.LastFour), wantedSecret(d, is, a))
	return fields
}

// ending shows a secret by its last four characters.
func ending(lastFour string) string {
	if lastFour == "" {
		return ""
	}
	return "…" + lastFour
}

// wantedSecret is the desired secret: each PUT to the relay itself brings a new one.
func wantedSecret(d Desired, is Shape, a Action) string {
	switch {
	case d.Generated == nil:
		return ending(d.LastFour)
	case len(a.Differs) > 0:
		return newSecret
	}
	return ending(is.LastFour)
}
