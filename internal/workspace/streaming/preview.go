package streaming

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

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
	action, err := w.plan(seen)
	if err != nil {
		return Preview{}, err
	}
	var own credentials.State
	if w.env.Stream.Relay != nil {
		if own, err = w.options.Credentials.State(w.environment()); err != nil {
			return Preview{}, err
		}
	}
	finding := w.finding(seen, action)
	return Preview{
		Project: w.env.Project, Environment: w.env.Environment, Mode: w.mode(), At: seen.at, Status: seen.status,
		Differs: len(action.Differs) > 0, Fields: fieldsOf(desired(w.env.Stream, own), seen.shape, action),
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
