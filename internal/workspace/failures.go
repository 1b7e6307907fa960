package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

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
	state := jsondiff.Encode(causes)
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
		e := &audit.Entry{Type: f.Failed, Before: before, After: state, Detail: jsondiff.Encode(told(now))}
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
