package web

import (
	"cmp"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

const (
	policiesPath = "/policies"
	// mostViolations bounds the violations of a page.
	mostViolations = 500
)

// policies are the rules about the settings, and what violates them.
type policies struct {
	Violated  []violation // the most severe first
	More      int         // violations that are not shown
	Excepted  []violation
	Judged    int                 // projects and environments
	Rules     []config.PolicyRule // in force
	Counts    map[string]int      // of the violations by their rules; those that are excepted are not counted
	Shipped   []config.PolicyRule // of packs that are not in force
	Past      string              // the address of the entries
	Exception string              // why the relay cannot say what is violated
}

// violation is one with its place.
type violation struct {
	workspace.PolicyViolation
	Project, Environment string
}

func policiesOf(a *asked) (any, error) {
	p := &policies{Counts: map[string]int{}, Past: changesPath + "?setting=" + workspace.SubjectPolicies}
	var all []workspace.PolicyStatus
	unreadable, err := sections(a, map[string]any{"policies": &all}, nil)
	if err != nil {
		return nil, err
	}
	p.Exception, p.Judged = strings.Join(unreadable, ""), len(all)
	for _, s := range all {
		for _, v := range s.Violations {
			one := violation{v, s.Project, s.Environment}
			if v.Excepted != nil {
				p.Excepted = append(p.Excepted, one)
				continue
			}
			p.Violated = append(p.Violated, one)
			p.Counts[v.Rule]++
		}
	}
	p.bound()
	in := a.opts.Policies()
	p.Rules = in.All()
	for _, pack := range config.PolicyPacks() {
		if !slices.Contains(in.Packs, pack.Name) {
			p.Shipped = append(p.Shipped, pack.Rules...)
		}
	}
	return p, nil
}

// bound sorts the violations, and leaves out those beyond what a page shows.
func (p *policies) bound() {
	for _, list := range []*[]violation{&p.Violated, &p.Excepted} {
		slices.SortStableFunc(*list, func(a, b violation) int {
			rank := func(v violation) int { return slices.Index(config.Severities(), v.Severity) }
			return cmp.Or(rank(b)-rank(a), cmp.Compare(a.Rule, b.Rule))
		})
		p.More += max(0, len(*list)-mostViolations)
		*list = (*list)[:min(len(*list), mostViolations)]
	}
}
