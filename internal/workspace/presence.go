package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The types of entries about an environment as a whole.
const (
	// TypeGone: by the API's word, the environment no longer exists.
	TypeGone = "environment.gone"
	// TypeBack: a gone environment is readable again.
	TypeBack = "environment.back"
)

// SubjectEnvironment is the subject of these entries.
const SubjectEnvironment = "environment"

// Presence notes gone environments in the trail: one entry when an environment goes, and
// one when it is back, for any number of looks. Its methods may be called concurrently.
type Presence struct {
	trail audit.Log
	log   *slog.Logger

	mu    sync.Mutex // guards known
	known map[[2]string]presence
}

// presence is what this process knows of an environment besides the trail. Without it
// the trail is read once more, and nothing else.
type presence struct {
	gone     bool
	lastSeen time.Time // zero: not by this process
}

// NewPresence returns a Presence over the trail.
func NewPresence(trail audit.Log, log *slog.Logger) *Presence {
	return &Presence{trail: trail, log: log, known: map[[2]string]presence{}}
}

// goneDetail is the Detail of the entries.
type goneDetail struct {
	Attribution
	// ErrorType is the 404's. Requests.After are the 404, and the successful read of the
	// project after it.
	ErrorType string   `json:"error_type,omitempty"`
	Requests  Requests `json:"request_ids,omitzero"`
}

// Gone notes the end of an environment, by a believed 404.
func (p *Presence) Gone(ctx context.Context, project, environment string, a *management.Absence) error {
	was, known := p.of(project, environment)
	if known && was.gone {
		return nil
	}
	if was.lastSeen.IsZero() {
		seen, err := p.everSeen(ctx, project, environment)
		if err != nil {
			return err
		}
		if !seen {
			if p.set(project, environment, presence{gone: true}) {
				return nil // the other room was quicker
			}
			p.log.Error("an environment of the configuration does not exist; check its project and environment slugs",
				"project", project, "environment", environment, "request_id", a.RequestID)
			return nil
		}
	}
	now := time.Now()
	d := goneDetail{Attribution: Outside(), ErrorType: a.Type, Requests: Requests{After: []string{a.RequestID, a.ParentRequestID}}}
	e := audit.Entry{Type: TypeGone, Time: now, Detail: jsontext.Encode(d)}
	if !was.lastSeen.IsZero() && !was.lastSeen.After(now) {
		e.Window = &audit.Window{After: was.lastSeen, Until: now}
	}
	return p.enter(ctx, project, environment, e, presence{gone: true, lastSeen: was.lastSeen})
}

// everSeen says whether the trail knows a state of the environment. One never seen is a
// slip in the configuration, and no change.
func (p *Presence) everSeen(ctx context.Context, project, environment string) (bool, error) {
	subjects := []string{"event_log_streaming", SubjectEnvironment}
	for _, s := range kinds.Of(false) {
		subjects = append(subjects, s.Name)
	}
	for _, subject := range subjects {
		_, found, err := p.trail.Last(ctx, project, environment, subject)
		if err != nil {
			return false, fmt.Errorf("read the trail of %s/%s: %w", project, environment, err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// Present notes a successful read in the environment, by the given request.
func (p *Presence) Present(ctx context.Context, project, environment, requestID string) error {
	was, known := p.of(project, environment)
	now := presence{lastSeen: time.Now()}
	if known && !was.gone {
		p.set(project, environment, now)
		return nil
	}
	d := goneDetail{Attribution: Outside(), Requests: Requests{After: []string{requestID}}}
	return p.enter(ctx, project, environment, audit.Entry{Type: TypeBack, Time: now.lastSeen, Detail: jsontext.Encode(d)}, now)
}

// enter appends e if the trail's newest entry says the opposite. A crash before the
// append leaves it to the next look; after it, the trail has the entry.
func (p *Presence) enter(ctx context.Context, project, environment string, e audit.Entry, now presence) error {
	entered, err := audit.Update(ctx, p.trail, project, environment, SubjectEnvironment, func(last audit.Entry, found bool) (*audit.Entry, error) {
		wasGone := found && last.Type == TypeGone
		if wasGone == now.gone {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		return &e, nil
	})
	if err != nil {
		return fmt.Errorf("enter %s of %s/%s: %w", e.Type, project, environment, err)
	}
	p.set(project, environment, now)
	if entered != nil {
		p.log.Warn("an environment is gone, or back", "type", e.Type, "project", project, "environment", environment, "index", entered.Index)
	}
	return nil
}

func (p *Presence) of(project, environment string) (presence, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.known[[2]string{project, environment}]
	return was, known
}

// set notes the new knowledge, and reports whether there was any before.
func (p *Presence) set(project, environment string, now presence) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known = p.known[[2]string{project, environment}]
	p.known[[2]string{project, environment}] = now
	return known
}

// Failures notes in the trail the failing reads and their causes: one entry at the
// beginning, at a change and at the end, for any number of repetitions. Its state in the
// trail is an object from the failing read to its cause. It is not safe for concurrent
// use.
type Failures struct {
	Trail                         audit.Log
	Project, Environment, Subject string
	// Failed and Recovered are the types of the entries.
	Failed, Recovered string

	entered json.RawMessage // the trail's state; nil: not known
}

// Failure is a failing read.
type Failure struct {
	// Cause is short, and equal for equal causes.
	Cause string
	// Error is the last error.
	Error string
}

// failuresDetail is the Detail of the entries.
type failuresDetail struct {
	Summary   string            `json:"summary"`
	Severity  meaning.Severity  `json:"severity"`
	Direction meaning.Direction `json:"direction"`
	Errors    map[string]string `json:"errors,omitempty"`
}

// told describes the failures in one sentence.
func told(now map[string]Failure) failuresDetail {
	if len(now) == 0 {
		return failuresDetail{Summary: "all of it can be read again", Severity: meaning.Info, Direction: meaning.Neutral}
	}
	d := failuresDetail{Severity: meaning.Medium, Direction: meaning.Neutral, Errors: map[string]string{}}
	var causes []string
	for _, read := range slices.Sorted(maps.Keys(now)) {
		causes = append(causes, read+" ("+now[read].Cause+")")
		d.Errors[read] = now[read].Error
	}
	d.Summary = plaintext.Line("cannot be read, so changes are not seen meanwhile: "+strings.Join(causes, ", "), maxSummary)
	return d
}

// maxSummary bounds a sentence, in characters.
const maxSummary = 500

// Note compares the failing reads with the trail's newest entry, and appends the
// difference.
func (f *Failures) Note(ctx context.Context, now map[string]Failure) error {
	causes := map[string]string{}
	for read, failure := range now {
		causes[read] = failure.Cause
	}
	state := jsontext.Encode(causes)
	if f.entered != nil && bytes.Equal(state, f.entered) {
		return nil
	}
	_, err := audit.Update(ctx, f.Trail, f.Project, f.Environment, f.Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		before := json.RawMessage("{}")
		if found {
			before = last.After
		}
		if bytes.Equal(before, state) {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		e := &audit.Entry{Type: f.Failed, Before: before, After: state, Detail: jsontext.Encode(told(now))}
		if len(now) == 0 {
			e.Type = f.Recovered
		}
		return e, nil
	})
	if err != nil {
		return fmt.Errorf("enter the failing reads: %w", err)
	}
	f.entered = state
	return nil
}
