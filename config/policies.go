package config

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// Policies hold the workspace's settings against rules. A violation and its end are entries of the
// audit trail, so that every sink gets them.
type Policies struct {
	// Packs are packs of rules that are shipped with the relay: baseline, strict. 'auditrelay
	// policy list' shows their rules. Default: none.
	Packs []string `yaml:"packs"`
	// Rules are your own.
	Rules []PolicyRule `yaml:"rules"`
	// Exceptions leave a violation unreported for a while.
	Exceptions []PolicyException `yaml:"exceptions"`
}

// PolicyRule is a rule about the state of one kind of setting.
type PolicyRule struct {
	// Name tells it from the other rules.
	Name string `yaml:"name" json:"name" check:"required"`
	// Setting is the kind of setting, as in settings.intervals.
	Setting string `yaml:"setting" json:"setting" check:"required"`
	// CEL is an expression of the Common Expression Language (https://cel.dev), true for a state
	// that keeps the rule. It knows state, the setting's JSON without the members that are null,
	// and the texts project and environment. An expression that fails, such as on a missing
	// member, counts as a violation.
	CEL string `yaml:"cel" json:"cel" check:"required"`
	// Reason says why the rule is there, for people who meet a violation.
	Reason string `yaml:"reason" json:"reason" check:"required"`
	// Severity is that of a violation: low, medium, high or critical. Default high.
	Severity string `yaml:"severity" json:"severity" default:"high" check:"low|medium|high|critical"`
}

// Severities are those that a rule may have, the least first.
func Severities() []string { return []string{"low", "medium", "high", "critical"} }

// PolicyPack is a named list of rules that is shipped with the relay.
type PolicyPack struct {
	Name string `yaml:"name"`
	// About says for whom it is.
	About string       `yaml:"about"`
	Rules []PolicyRule `yaml:"rules"`
}

//go:embed packs.yaml
var packs []byte

// PolicyPacks are those shipped with the relay. The names of their rules begin with the pack's and a
// slash.
var PolicyPacks = sync.OnceValue(func() (all []PolicyPack) {
	d := yaml.NewDecoder(bytes.NewReader(packs))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		panic(err) // a test reads the file
	}
	for _, p := range all {
		for i := range p.Rules {
			p.Rules[i].Name = p.Name + "/" + p.Rules[i].Name
		}
	}
	return all
})

// PolicyException leaves the violations of a rule unreported until a time.
type PolicyException struct {
	// Rule is the name of a rule; one of a pack is written PACK/NAME.
	Rule string `yaml:"rule" check:"required"`
	// Project and Environment are slugs. Default: all.
	Project     string `yaml:"project"`
	Environment string `yaml:"environment"`
	// Until is a date, as 2027-01-31, whose first moment in UTC is meant, or a time, as
	// 2027-01-31T09:00:00Z.
	Until string `yaml:"until" check:"required"`
	// Reason says why, for the audit trail.
	Reason string `yaml:"reason" check:"required"`
}

// maxRules bounds the rules, and so the size of an entry about them.
const maxRules = 200

// All are the rules in force, those of the packs first.
func (p Policies) All() (rules []PolicyRule) {
	for _, pack := range PolicyPacks() {
		if slices.Contains(p.Packs, pack.Name) {
			rules = append(rules, pack.Rules...)
		}
	}
	return append(rules, p.Rules...)
}

// End is the time that Until means; zero where it is none.
func (e PolicyException) End() time.Time {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, e.Until); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

func (k *checker) policies(c *Config) {
	p := c.Policies
	var known []string
	for _, pack := range PolicyPacks() {
		known = append(known, pack.Name)
	}
	for i, name := range p.Packs {
		k.failIf(!slices.Contains(known, name), fmt.Sprintf("policies.packs[%d]", i), name, "must be "+strings.Join(known, " or "))
	}
	if len(p.Rules) > maxRules {
		k.fail("policies.rules", len(p.Rules), fmt.Sprintf("must be at most %d", maxRules))
		return
	}
	names := map[string]bool{}
	for i, r := range p.Rules {
		at := fmt.Sprintf("policies.rules[%d]", i)
		k.policyRule(at, r)
		k.failIf(names[r.Name], at+".name", r.Name, "is the name of another rule")
		names[r.Name] = true
	}
	for i, e := range p.Exceptions {
		k.exception(fmt.Sprintf("policies.exceptions[%d]", i), e, p.All())
	}
	k.warnIf(len(p.All()) > 0 && (c.Workspace == nil || c.Settings.Disabled), "policies", "have no effect: no settings are watched")
}

func (k *checker) policyRule(at string, r PolicyRule) {
	k.failIf(strings.Contains(r.Name, "/"), at+".name", r.Name, `must hold no "/", which stands in the names of a pack's rules`)
	if r.Setting != "" {
		k.oneOf(at+".setting", r.Setting, SettingKinds()...)
	}
	if r.CEL != "" {
		k.expression(at+".cel", r.CEL, match.CompileState)
	}
}

func (k *checker) exception(at string, e PolicyException, rules []PolicyRule) {
	k.failIf(e.Until != "" && e.End().IsZero(), at+".until", e.Until, "must be a date such as 2027-01-31, or a time such as 2027-01-31T09:00:00Z")
	if e.Rule != "" && !slices.ContainsFunc(rules, func(r PolicyRule) bool { return r.Name == e.Rule }) {
		k.fail(at+".rule", e.Rule, "is no rule of policies.rules, nor of policies.packs, whose rules are written PACK/NAME")
	}
}
