package timeline

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// Filter chooses entries: those with every given property. In Type, Without,
// Project, Environment, Setting, Cause and Actor each "*" stands for any text. Type may be several types
// with commas between them.
type Filter struct {
	Since       time.Time `json:"since,omitzero"` // at or after
	Until       time.Time `json:"until,omitzero"` // before
	Type        string    `json:"type,omitempty"`
	Without     string    `json:"without,omitempty"` // not of this type
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Setting     string    `json:"setting,omitempty"`
	Cause       string    `json:"cause,omitempty"`
	Actor       string    `json:"actor,omitempty"`    // in whole, or one of its names
	Severity    string    `json:"severity,omitempty"` // at least
	Direction   string    `json:"direction,omitempty"`
	Text        string    `json:"text,omitempty"` // in a sentence, in any case
	// Unreviewed leaves the changes without an annotation.
	Unreviewed bool `json:"unreviewed,omitempty"`
	// States leaves the entries with a state of a setting.
	States bool `json:"states,omitempty"`
	// Index, where it is set, leaves one entry.
	Index *int64 `json:"index,omitempty"`
	// From and Before, where they are set, leave the entries from an index on, and before one.
	From   *int64 `json:"from,omitempty"`
	Before *int64 `json:"before,omitempty"`
	// Limit leaves the newest ones; 0 is no limit.
	Limit int `json:"limit,omitempty"`
}

// Severities and Directions are the names in a Filter; the severities ascend.
func Severities() []string { return slices.Clone(severities) }

// Directions are the names in a Filter.
func Directions() []string { return slices.Clone(directions) }

// Check names a wrong property.
func (f *Filter) Check() error {
	switch {
	case f.Severity != "" && !slices.Contains(severities, f.Severity):
		return fmt.Errorf("severity %q: write one of %s", f.Severity, strings.Join(severities, ", "))
	case f.Direction != "" && !slices.Contains(directions, f.Direction):
		return fmt.Errorf("direction %q: write one of %s", f.Direction, strings.Join(directions, ", "))
	case f.Limit < 0:
		return fmt.Errorf("limit %d: write a number from 0 on", f.Limit)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return fmt.Errorf("the time is empty: since %s is not before until %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return nil
}

// matcher is a filter for the rows of a table.
type matcher struct {
	table        *table
	from, before int64 // of the indexes
	since, until int64
	names        [columns][]bool // those that fit, by their places in table.names; nil: all
	without      []bool          // likewise of ofKind; nil: none
	levels       []bool          // those that fit; nil: all
	unreviewed   bool
	states       bool
	phrase       phrase
	any          bool // of all entries, missing ones too
}

func (f *Filter) matcher(t *table) *matcher {
	m := &matcher{
		table: t, since: -1 << 63, until: 1<<63 - 1,
		before: t.n, unreviewed: f.Unreviewed, states: f.States, phrase: phraseOf(f.Text),
	}
	if f.From != nil {
		m.from = *f.From
	}
	if f.Before != nil {
		m.before = min(m.before, *f.Before)
	}
	if f.Index != nil {
		m.from, m.before = max(m.from, *f.Index), min(m.before, *f.Index+1)
	}
	if !f.Since.IsZero() {
		m.since = nanos(f.Since)
	}
	if !f.Until.IsZero() {
		m.until = nanos(f.Until)
	}
	for column, pattern := range [columns]string{ofProject: f.Project, ofEnvironment: f.Environment, ofSubject: f.Setting, ofCause: f.Cause} {
		if pattern != "" {
			m.names[column] = named(t, pattern)
		}
	}
	if f.Type != "" {
		m.names[ofKind] = named(t, strings.Split(f.Type, ",")...)
	}
	if f.Actor != "" {
		m.names[ofActor] = actors(t, f.Actor)
	}
	if f.Severity != "" || f.Direction != "" {
		m.levels = leveled(f)
	}
	if f.Without != "" {
		m.without = named(t, f.Without)
	}
	m.any = *f == Filter{Limit: f.Limit, Index: f.Index, From: f.From, Before: f.Before, Without: f.Without}
	return m
}

// nanos is a time in the unit of the rows: the first or the last one there is for a time
// outside the years 1678 to 2261.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// leveled returns the fitting levels.
func leveled(f *Filter) []bool {
	least, direction, ok := place(severities, f.Severity), place(directions, f.Direction), make([]bool, math.MaxUint8+1)
	for id := range ok {
		l := levels(id)
		ok[id] = l.severity() >= least && (f.Direction == "" || l.direction() == direction)
	}
	return ok
}

// named returns the names of a table that fit one of the patterns. A long one fits by its start, and as a
// whole.
func named(t *table, patterns ...string) []bool {
	ok := make([]bool, len(t.names))
	for _, pattern := range patterns {
		p, short := match.ParsePattern(pattern), ShortName(pattern)
		for id, name := range t.names {
			ok[id] = ok[id] || name == short || p.Matches(name)
		}
	}
	return ok
}

var parts = strings.NewReplacer("(claims ", ",", "(by ", ",")

// actors returns the fitting names of actors. Of "root@a (claims ada@b), bob@c (by oidc)" each part
// fits by itself too: root@a, root, ada@b, ada, bob@c, bob and oidc.
func actors(t *table, pattern string) []bool {
	p, ok := match.ParsePattern(pattern), named(t, pattern)
	for id, name := range t.names {
		for _, part := range strings.FieldsFunc(parts.Replace(name), func(r rune) bool { return r == ',' || r == ')' }) {
			part = strings.TrimSpace(part)
			user, _, _ := strings.Cut(part, "@")
			ok[id] = ok[id] || p.Matches(part) || user != "" && p.Matches(user)
		}
	}
	return ok
}

func (m *matcher) isWithout(r *row) bool { return m.without != nil && m.without[r.Names[ofKind]] }

// down yields the indexes of the rows that match, the newest first.
func (m *matcher) down(yield func(int64) bool) {
	for index := m.before - 1; index >= max(m.from, 0); index-- {
		if m.matches(index) && !yield(index) {
			return
		}
	}
}

// matches reports whether a row fits, except for its place and its text.
func (m *matcher) matches(index int64) bool {
	r := m.table.at(index)
	switch {
	case m.any || r.Flags&isMissing != 0:
		return m.any && (r.Flags&isMissing != 0 || !m.isWithout(r))
	case m.isWithout(r):
		return false
	case r.Time < m.since, r.Time >= m.until:
		return false
	case m.states && r.Flags&isState == 0:
		return false
	case m.unreviewed && (r.Flags&needsReview == 0 || m.table.isReviewed(index)):
		return false
	}
	for column, ok := range &m.names {
		if ok != nil && !ok[r.Names[column]] {
			return false
		}
	}
	return m.levels == nil || m.levels[r.Levels]
}
