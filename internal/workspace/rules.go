package workspace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// Violation is a state that does not keep a rule.
type Violation struct {
	Rule     string `json:"rule"`
	Setting  string `json:"setting"`
	Severity string `json:"severity"`
	Reason   string `json:"reason"`
	// Fault says why the rule could not be evaluated, which counts as a violation: what cannot be
	// checked is not known to be kept. It is empty for a rule that is false.
	Fault string `json:"fault,omitempty"`
}

// Rules are compiled rules of policies, which judge without knowing the trail or the time. They may
// be used concurrently; the zero value has no rules.
type Rules struct{ rules []compiled }

type compiled struct {
	config.PolicyRule
	condition *match.Condition
}

// CompileRules compiles rules. Its error names the rule.
func CompileRules(rules []config.PolicyRule) (*Rules, error) {
	s := &Rules{}
	for _, r := range rules {
		condition, err := match.CompileState(r.CEL)
		if err != nil {
			return nil, fmt.Errorf("compile the rule %s: %w", r.Name, err)
		}
		s.rules = append(s.rules, compiled{r, condition})
	}
	return s, nil
}

// Settings are the kinds of settings that the rules are about, sorted.
func (s *Rules) Settings() (names []string) {
	for _, r := range s.rules {
		names = append(names, r.Setting)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Judge returns the rules that a state of a setting, as JSON, violates, by the rules' names.
func (s *Rules) Judge(project, environment, setting string, state []byte) (found []Violation) {
	vars := match.StateVariables(state, project, environment)
	for _, r := range s.rules {
		if r.Setting != setting {
			continue
		}
		v := Violation{Rule: r.Name, Setting: r.Setting, Severity: r.Severity, Reason: r.Reason}
		switch holds, err := r.condition.Holds(vars); {
		case err != nil:
			v.Fault = "it cannot be evaluated: " + err.Error()
		case holds:
			continue
		}
		found = append(found, v)
	}
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
	return found
}

// worst is the highest severity of some violations; empty for none.
func worst(of []Violation) (severity string) {
	for _, v := range of {
		if slices.Index(config.Severities(), v.Severity) > slices.Index(config.Severities(), severity) {
			severity = v.Severity
		}
	}
	return severity
}
