// Package policy judges the states of the workspace's settings by rules: a rule is an expression
// of the Common Expression Language over the state of one kind of setting, true where the state
// is as it should be. Packs of rules are shipped as data, in packs.yaml.
//
// It is pure: it knows neither the trail nor the time.
package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// Rule is a rule about the state of one kind of setting.
type Rule struct {
	// Name is unique among all rules that are in force. A rule of a pack has the pack's name and
	// a slash before its own.
	Name string `yaml:"name" json:"name"`
	// Setting is the name of a kind, as in internal/workspace/kinds.
	Setting string `yaml:"setting" json:"setting"`
	// CEL is true for a state that keeps the rule. It knows state, the setting's JSON without the
	// members that are null, and the texts project and environment.
	CEL string `yaml:"cel" json:"cel"`
	// Reason says why the rule is there, for people who meet a violation.
	Reason string `yaml:"reason" json:"reason"`
	// Severity is that of a violation: low, medium, high or critical.
	Severity string `yaml:"severity" json:"severity"`
}

// Severities are those that a rule may have, the least first.
func Severities() []string { return []string{"low", "medium", "high", "critical"} }

// State is the state of one setting.
type State struct {
	Project, Environment, Setting string
	Value                         []byte // JSON
}

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

// Set are compiled rules. It may be used concurrently; the zero value has no rules.
type Set struct{ rules []compiled }

type compiled struct {
	Rule
	condition *match.Condition
}

// Compile compiles rules. Its error names the rule.
func Compile(rules []Rule) (*Set, error) {
	s := &Set{}
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
func (s *Set) Settings() (names []string) {
	for _, r := range s.rules {
		names = append(names, r.Setting)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Judge returns the rules that a state violates, by the rules' names.
func (s *Set) Judge(state State) (found []Violation) {
	vars := match.StateVariables(state.Value, state.Project, state.Environment)
	for _, r := range s.rules {
		if r.Setting != state.Setting {
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

// Worst is the highest severity of some violations; empty for none.
func Worst(of []Violation) (worst string) {
	for _, v := range of {
		if slices.Index(Severities(), v.Severity) > slices.Index(Severities(), worst) {
			worst = v.Severity
		}
	}
	return worst
}
