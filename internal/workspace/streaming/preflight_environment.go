package streaming

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// PreflightEnvironment is a configured environment at the API.
type PreflightEnvironment struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	// Exists is "yes", "no" or "unknown".
	Exists string `json:"exists"`
	// Destination is where it streams to; nil: nowhere, or unknown.
	Destination *Shape `json:"destination,omitempty"`
	// Status is the streaming_status; empty without a destination.
	Status management.StreamingStatus `json:"streaming_status,omitempty"`
	// Differs names the fields of the destination for the relay to change. Its credential is
	// not compared.
	Differs []string `json:"differs,omitempty"`
	// Error is why it could not be read.
	Error string `json:"error,omitempty"`
}

// The words of [PreflightEnvironment.Exists].
const (
	ExistsYes     = "yes"
	ExistsNo      = "no"
	ExistsUnknown = "unknown"
)

// readEnvironments looks at each environment of the existing projects.
func (r *preflightRun) readEnvironments(ctx context.Context) {
	each(ctx, r.cfg.Environments, func(i int, e config.Environment) {
		if r.absent[e.Project] {
			r.note(func() { r.report.Environments[i].Exists = ExistsNo })
		}
		if !r.projects[e.Project] {
			return
		}
		shown, status, err := r.shown(ctx, e)
		if ctx.Err() != nil {
			return
		}
		found := r.judge(i, e, shown, status, err)
		r.note(func() { r.report.Environments[i] = found })
	})
}

// shown reads the config of an environment: of the desired type, else of the other. Without
// a config it is nil; without an environment the error is a [management.Absence].
func (r *preflightRun) shown(ctx context.Context, e config.Environment) (*Shape, management.StreamingStatus, error) {
	types := []management.DestinationType{management.GrafanaLoki, management.Datadog}
	if e.Stream != nil && e.Stream.Datadog != nil {
		slices.Reverse(types)
	}
	var absent error
	for _, t := range types {
		a, err := r.client.EventLogStreaming(ctx, e.Project, e.Environment, t)
		switch {
		case management.IsNotFound(err), errors.Is(err, management.ErrNoResource):
			absent = err
		case err != nil:
			return nil, "", err
		default:
			if a.Shape != nil {
				return a.Shape, a.Status, nil
			}
		}
	}
	if absent == nil {
		return nil, "", nil
	}
	err := r.client.Confirm(ctx, e.Project, e.Environment, absent)
	var a *management.Absence
	if errors.As(err, &a) && !a.WholeEnvironment {
		err = nil
	}
	return nil, "", err
}

// judge notes the problems of an environment.
func (r *preflightRun) judge(i int, e config.Environment, shown *Shape, status management.StreamingStatus, err error) PreflightEnvironment {
	found := PreflightEnvironment{Project: e.Project, Environment: e.Environment, Exists: ExistsYes, Destination: shown, Status: status}
	field := fmt.Sprintf("environments[%d]", i)
	var gone *management.Absence
	reach, _ := r.client.Reach()
	switch {
	case err == nil:
		found.Differs = r.compare(field, e, shown, status)
	case errors.As(err, &gone):
		found.Exists = ExistsNo
		r.fail(field+".environment", fmt.Sprintf("project %s has no environment %q (%s, request %s); correct the slug",
			e.Project, e.Environment, gone.Type, gone.RequestID))
	case reach.Cause != "":
		found.Exists, found.Error = ExistsUnknown, reach.Error
		r.unusable(reach)
	default:
		found.Exists, found.Error = ExistsUnknown, err.Error()
		r.fail(field, fmt.Sprintf("the streaming config of %s/%s cannot be read: %v", e.Project, e.Environment, err))
	}
	return found
}

// compare warns of surprises at the relay's start, and returns the fields to change.
func (r *preflightRun) compare(field string, e config.Environment, shown *Shape, status management.StreamingStatus) []string {
	if e.Stream == nil || e.Stream.Observe {
		return nil
	}
	want := wanted(e, shown)
	differs := Plan(want, shown).Differs
	field += ".stream"
	switch {
	case shown == nil:
		r.warn(field, fmt.Sprintf("%s/%s has no streaming config, and the API has no operation to create one: where it refuses the relay's PUT, "+
			"create one of type %s in the dashboard, and enable it", e.Project, e.Environment, want.Type))
	case shown.Type != want.Type:
		r.warn(field, fmt.Sprintf("%s/%s streams to %s now, which would get no more events: where the API refuses the relay's PUT, "+
			"delete that config in the dashboard, and create and enable one of type %s", e.Project, e.Environment, DestinationText(shown), want.Type))
	case slices.Contains(differs, "hostname"), slices.Contains(differs, "site"):
		r.warn(field, fmt.Sprintf("%s/%s streams to %s now, which would get no more events", e.Project, e.Environment, DestinationText(shown)))
	}
	if shown != nil && shown.Type == want.Type && status != management.StatusActive && status != management.StatusPending {
		r.warn(field, fmt.Sprintf("the streaming_status of %s/%s is %q, and the API has no operation to enable it: "+
			"where it is not %s after the relay's start, enable it in the dashboard", e.Project, e.Environment, status, management.StatusActive))
	}
	return differs
}

// DestinationText is a short text for people.
func DestinationText(s *Shape) string {
	switch {
	case s == nil:
		return "nowhere"
	case s.Site != "":
		return string(s.Type) + " " + s.Site
	}
	return strings.TrimSpace(string(s.Type) + " " + s.Hostname)
}

// wanted is e's desired destination without the relay's credentials: the user name is the
// relay's own, and any password is taken for right. e must have a desired Stream.
func wanted(e config.Environment, shown *Shape) Desired {
	own := credentials.State{Username: credentials.EnvironmentOf(e).Username()}
	if shown != nil {
		own.Current = shown.LastFour
	}
	return desired(e.Stream, own)
}
