package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// Match chooses the events with every term true.
type Match []term

type term struct {
	key   string
	value match.Pattern
}

// matchKeys are the attributes in terms.
func matchKeys() []string { return []string{"type", "project", "environment", "id", "subject"} }

// ParseMatch reads terms KEY=VALUE, joined with commas. KEY is type, project,
// environment, id or subject; in VALUE each * stands for any text. An empty
// expression matches everything.
func ParseMatch(expr string) (Match, error) {
	if strings.TrimSpace(expr) == "" {
		return nil, nil
	}
	var m Match
	for text := range strings.SplitSeq(expr, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(text), "=")
		if key = strings.TrimSpace(key); !ok || !slices.Contains(matchKeys(), key) {
			return nil, fmt.Errorf("match %q: write KEY=VALUE, where KEY is one of %s and VALUE may hold *",
				strings.TrimSpace(text), strings.Join(matchKeys(), ", "))
		}
		m = append(m, term{key, match.ParsePattern(strings.TrimSpace(value))})
	}
	return m, nil
}

// Keeps reports whether e is meant.
func (m Match) Keeps(e *relay.Event) bool {
	for _, t := range m {
		if !t.value.Matches(attribute(e, t.key)) {
			return false
		}
	}
	return true
}

func attribute(e *relay.Event, key string) string {
	switch key {
	case "type":
		return e.Type
	case "project":
		return e.Project
	case "environment":
		return e.Environment
	case "id":
		return e.ID
	default:
		return e.Subject
	}
}
