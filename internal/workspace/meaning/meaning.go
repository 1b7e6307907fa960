// Package meaning explains a change of a setting to a person: in sentences, with a
// direction (does the setting permit more now?) and a severity.
//
// The direction comes from the sets permitted before and after: of allowed actions, of
// accepted passwords, of reachable countries. It does not depend on the moved field. The
// severity comes from one table of rules; see [Rules].
//
// Everything here is a pure function of two states. States come from outside, so names in
// sentences are quoted, escaped and cut, and all output is bounded, whatever the size of
// the states.
package meaning

import (
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// Reading is the meaning of the change from one state to another. The zero value, with
// neutral and info, is the reading of two states with equal meaning.
type Reading struct {
	// Summary is one sentence for the whole change: the first statement, and how many
	// more there are. It is empty if nothing changed.
	Summary   string    `json:"summary,omitempty"`
	Direction Direction `json:"direction"`
	Severity  Severity  `json:"severity"`
	// Statements are worst first: at most 200, and at most 64 KiB as JSON. Omitted counts
	// the others; Direction and Severity cover those too.
	Statements []Statement `json:"statements,omitempty"`
	Omitted    int         `json:"statements_omitted,omitempty"`
}

// Statement is one changed thing.
type Statement struct {
	Sentence string `json:"sentence"`
	// Path is as in [jsontext.Change], cut after 512 bytes.
	Path      string    `json:"path"`
	Direction Direction `json:"direction"`
	Severity  Severity  `json:"severity"`
	// Rule is the id of the [Rule] with this direction and severity.
	Rule string `json:"rule"`
	// Witness is an example to prove the direction: something permitted on one side only.
	// Each weaker, stronger or mixed statement has one.
	Witness string `json:"witness,omitempty"`
	// Old and New are the values on either side, cut if long; nil where there is none.
	Old json.RawMessage `json:"old,omitempty"`
	New json.RawMessage `json:"new,omitempty"`
	// Diff compares the lines of a long text, in unified format. It is cut after 4 KiB.
	Diff string `json:"diff,omitempty"`
}

// Direction says whether a setting permits more or less than before.
type Direction string

// The directions.
const (
	Weaker   Direction = "weaker"   // permits something new
	Stronger Direction = "stronger" // permits less
	Mixed    Direction = "mixed"    // permits something new, and something no longer
	Neutral  Direction = "neutral"  // permits the same
	Unknown  Direction = "unknown"  // no rule can tell
)

// Severity is how urgently a person should look.
type Severity string

// The severities, in rising order.
const (
	Info     Severity = "info"
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Read explains the change from one state to the other. A state is a setting's JSON as it
// stands in the trail; nil or null means none. The subject is an entry's: "rbac_policy",
// "event_log_streaming" and the like. A change of another subject, and whatever no rule
// knows, is told plainly, with direction unknown.
//
// A state other than JSON has the error of [jsontext.Canonical]. A panic is an error,
// too: a mistake in a rule must not keep a change from being recorded.
func Read(subject string, before, after json.RawMessage) (Reading, error) {
	a, err := jsontext.Read(before)
	if err != nil {
		return Reading{}, fmt.Errorf("read the state before: %w", err)
	}
	b, err := jsontext.Read(after)
	if err != nil {
		return Reading{}, fmt.Errorf("read the state after: %w", err)
	}
	return Compare(subject, a, b).Explain("")
}

// Comparison is two states of a setting, compared once. What they differ in is in Changes, and
// what that means is told by [Comparison.Explain].
type Comparison struct {
	Changes jsontext.Changes

	subject       string
	before, after jsontext.State
}

// Compare compares two states of a subject: see [Read].
func Compare(name string, before, after jsontext.State) Comparison {
	s := subjects[name]
	if s.optional {
		before, after = orEmpty(before), orEmpty(after)
	}
	return Comparison{jsontext.DiffValues(s.schema, before.Value, after.Value), name, before, after}
}

// How is a known circumstance of a change, and "" if there is none.
type How string

const (
	// Returned means that the setting was gone, and is back. The state before is the one before it went.
	Returned How = "returned"
	// Restored means that the relay put back the destination of the event log that had stood before. Told
	// like any other move, that would be as alarming as the change that it mends.
	Restored How = "restored"
)

// Explain tells what a change means. A panic in a rule is an error.
func (c Comparison) Explain(how How) (_ Reading, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("explain the change of %s: panic: %v", c.subject, p)
		}
	}()
	told := newCollector()
	told.restored = how == Restored
	if how == Returned {
		told.add("setting.returned", Statement{Sentence: "this setting is there again"})
	}
	told.compare(c)
	return told.reading(), nil
}

// compare adds statements for all differences between two states.
func (c *collector) compare(of Comparison) {
	s, a, b := subjects[of.subject], of.before, of.after
	switch {
	case a.None() && b.None():
		return
	case a.None() && a.JSON != nil:
		c.add("setting.back", Statement{Sentence: "this setting is there, and was not before; what it permitted then is not known"})
		return
	case a.None():
		c.add("setting.first_seen", Statement{Sentence: "this setting is seen for the first time"})
		return
	case b.None():
		c.add("setting.gone", Statement{Sentence: "this setting is gone"})
		return
	}
	if len(of.Changes.List) == 0 {
		return
	}
	if s.explain == nil {
		c.plain("setting.changed", of.Changes)
		return
	}
	s.explain(c, a.Value, b.Value)
	c.plain("setting.changed", jsontext.DiffValues(s.schema, strip(s.shape(a.Value), a.Value), strip(s.shape(b.Value), b.Value)))
	if c.total == 0 {
		c.plain("setting.rewritten", of.Changes)
	}
}

func orEmpty(s jsontext.State) jsontext.State {
	if s.None() {
		return jsontext.State{JSON: json.RawMessage("{}"), Value: map[string]any{}}
	}
	return s
}
