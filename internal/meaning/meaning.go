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

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
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
	// Patch makes the state before, in canonical form, into the state after. It is hardly
	// larger than the state after. States in another order only have a patch too.
	Patch []Operation `json:"patch,omitempty"`
}

// Statement is one changed thing.
type Statement struct {
	Sentence string `json:"sentence"`
	// Path is as in [jsondiff.Change], cut after 512 bytes.
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
// A state other than JSON has the error of [jsondiff.Canonical]. A panic is an error,
// too: a mistake in a rule must keep no change from being recorded.
func Read(subject string, before, after json.RawMessage) (Reading, error) {
	return read(newCollector(), subject, before, after)
}

// ReadReturned is [Read] for a returned setting: last is its state before it went.
func ReadReturned(subject string, last, after json.RawMessage) (Reading, error) {
	c := newCollector()
	c.add("setting.returned", func() Statement { return Statement{Sentence: "this setting is there again"} })
	return read(c, subject, last, after)
}

// ReadRestored is [Read] for a change of the event log's config by which the relay put back
// the destination that had stood before. Told like any other move, it would be as alarming
// as the change that it mends.
func ReadRestored(subject string, before, after json.RawMessage) (Reading, error) {
	c := newCollector()
	c.restored = true
	return read(c, subject, before, after)
}

func read(c *collector, subject string, before, after json.RawMessage) (_ Reading, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("explain the change of %s: panic: %v", subject, p)
		}
	}()
	a, err := decode(before)
	if err != nil {
		return Reading{}, fmt.Errorf("read the state before: %w", err)
	}
	b, err := decode(after)
	if err != nil {
		return Reading{}, fmt.Errorf("read the state after: %w", err)
	}
	c.compare(subject, a, b)
	reading := c.reading()
	reading.Patch = patch(a, b)
	return reading, nil
}

// state is a decoded state, if there is one.
type state struct {
	exists bool
	value  any
}

// none reports whether the resource does not exist.
func (s state) none() bool { return s.value == nil }

func decode(raw json.RawMessage) (state, error) {
	if len(raw) == 0 {
		return state{}, nil
	}
	v, err := jsondiff.Decode(raw)
	return state{exists: true, value: v}, err
}

// subject is how the states of one subject are read.
type subject struct {
	schema *jsondiff.Schema
	// shape is the form understood by explain; the rest is compared plainly. It may depend
	// on the state.
	shape func(v any) *shape
	// explain adds statements for two states. They may have any form.
	explain func(c *collector, before, after any)
	// optional: no state is a state like others, and not an unseen one.
	optional bool
}

// compare adds statements for all differences between two states.
func (c *collector) compare(name string, a, b state) {
	s := subjects[name]
	if s.optional {
		a, b = orEmpty(a), orEmpty(b)
	}
	switch {
	case a.none() && b.none():
		return
	case a.none() && a.exists:
		c.add("setting.back", func() Statement {
			return Statement{Sentence: "this setting is there, and was not before; what it permitted then is not known"}
		})
		return
	case a.none():
		c.add("setting.first_seen", func() Statement { return Statement{Sentence: "this setting is seen for the first time"} })
		return
	case b.none():
		c.add("setting.gone", func() Statement { return Statement{Sentence: "this setting is gone"} })
		return
	}
	changes := jsondiff.DiffValues(s.schema, a.value, b.value)
	if len(changes.List) == 0 {
		return
	}
	if s.explain == nil {
		c.plain("setting.changed", changes)
		return
	}
	s.explain(c, a.value, b.value)
	c.plain("setting.changed", jsondiff.DiffValues(s.schema, strip(s.shape(a.value), a.value), strip(s.shape(b.value), b.value)))
	if c.total == 0 {
		c.plain("setting.rewritten", changes)
	}
}

func orEmpty(s state) state {
	if s.none() {
		return state{exists: true, value: map[string]any{}}
	}
	return s
}
