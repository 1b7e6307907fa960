package meaning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

const (
	maxStatements = 200      // in one reading
	maxBytes      = 64 << 10 // of JSON of all statements
	maxValue      = 512      // bytes of a value in a statement
	maxPath       = 512      // bytes of a path in a statement
)

// collector gathers statements. It keeps the first of each severity, and counts all.
type collector struct {
	kept  map[Severity][]Statement
	total int

	weaker, stronger, unknown bool
	worst                     Severity

	restored bool            // the relay put back the event log's destination
	rules    map[string]Rule // by id
}

func newCollector() *collector {
	return &collector{rules: rules, kept: map[Severity][]Statement{}, worst: Info}
}

// add adds a statement, with the direction and severity of a rule.
func (c *collector) add(rule string, s Statement) {
	r := c.rules[rule]
	c.total++
	c.weaker = c.weaker || r.Direction == Weaker || r.Direction == Mixed
	c.stronger = c.stronger || r.Direction == Stronger || r.Direction == Mixed
	c.unknown = c.unknown || r.Direction == Unknown
	if rank(r.Severity) > rank(c.worst) {
		c.worst = r.Severity
	}
	if c.full(rule) {
		return
	}
	s.Rule, s.Direction, s.Severity = r.ID, r.Direction, r.Severity
	s.Path, s.Old, s.New = cutPath(s.Path), jsontext.Shorten(s.Old, maxValue), jsontext.Shorten(s.New, maxValue)
	c.kept[r.Severity] = append(c.kept[r.Severity], s)
}

// full reports whether there is no room for one more statement of a rule.
func (c *collector) full(rule string) bool {
	return len(c.kept[c.rules[rule].Severity]) >= maxStatements
}

// plain tells changes with their path, old and new.
func (c *collector) plain(rule string, changes jsontext.Changes) {
	for _, change := range changes.List {
		c.add(rule, Statement{Sentence: plainly(change), Path: change.Path, Old: change.Old, New: change.New})
	}
	if changes.More > 0 {
		c.add(rule, Statement{Sentence: fmt.Sprintf("%d more values changed", changes.More)})
		c.total += changes.More - 1
	}
}

// plainly tells a change in words. Sentences go into logs, so a possible secret is not
// shown.
func plainly(change jsontext.Change) string {
	at := quote(change.Path)
	if change.Path == "" {
		at = "the whole setting"
	}
	if maybeSecret(change.Path) || maybeSecret(string(change.Old)) || maybeSecret(string(change.New)) {
		return at + " changed; its value is not shown here, as it may be a secret"
	}
	switch {
	case change.Old == nil:
		return at + " gained " + quoteJSON(change.New)
	case change.New == nil:
		return at + " lost " + quoteJSON(change.Old)
	}
	return at + ": " + quoteJSON(change.Old) + " → " + quoteJSON(change.New)
}

// maybeSecret reports whether a text has a word from the names of secrets.
func maybeSecret(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{"secret", "password", "token", "key", "credential"}, func(word string) bool {
		return strings.Contains(text, word)
	})
}

// direction is the direction of all statements together. What is certainly weaker stays weaker
// together with something unknown; stronger does not stay stronger.
func (c *collector) direction() Direction {
	switch {
	case c.weaker && c.stronger:
		return Mixed
	case c.weaker:
		return Weaker
	case c.unknown:
		return Unknown
	case c.stronger:
		return Stronger
	}
	return Neutral
}

// reading orders the statements and cuts them to size.
func (c *collector) reading() Reading {
	r := Reading{Direction: c.direction(), Severity: c.worst}
	left := maxBytes
	for _, severity := range []Severity{Critical, High, Medium, Low, Info} {
		slices.SortStableFunc(c.kept[severity], func(a, b Statement) int {
			return cmp.Compare(order(a.Direction), order(b.Direction))
		})
		for _, s := range c.kept[severity] {
			raw, err := json.Marshal(s)
			if left -= len(raw) + len(","); err != nil || left < 0 || len(r.Statements) == maxStatements {
				left = 0 // a smaller one after it would not be in order
				break
			}
			r.Statements = append(r.Statements, s)
		}
	}
	r.Omitted = c.total - len(r.Statements)
	r.Summary = summary(r.Statements, c.total)
	return r
}

func summary(statements []Statement, total int) string {
	switch {
	case len(statements) == 0:
		return ""
	case total == 1:
		return statements[0].Sentence
	}
	return statements[0].Sentence + ", and " + plural(total-1, "more change", "more changes")
}

// rank orders severities, and order directions of one severity.
func rank(s Severity) int { return slices.Index([]Severity{Info, Low, Medium, High, Critical}, s) }

func order(d Direction) int {
	return slices.Index([]Direction{Weaker, Mixed, Unknown, Stronger, Neutral}, d)
}

func cutPath(path string) string {
	if len(path) <= maxPath {
		return path
	}
	cut := maxPath
	for !utf8.RuneStart(path[cut]) {
		cut--
	}
	return path[:cut] + "…"
}
