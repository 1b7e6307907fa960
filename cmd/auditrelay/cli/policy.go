package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// policyRule is a rule with the pack that it is from, and whether it is in force.
type policyRule struct {
	config.PolicyRule
	InForce bool `json:"in_force"`
}

func (p Program) newPolicyList() *cobra.Command {
	return question("policy list", p.configured(), forms("table", "json"), func(_ *cobra.Command, cfg *config.Config, _ []string) (rules []policyRule, _ error) {
		for _, r := range cfg.Policies.All() {
			rules = append(rules, policyRule{r, true})
		}
		for _, pack := range config.PolicyPacks() {
			for _, r := range pack.Rules {
				if !slices.Contains(cfg.Policies.Packs, pack.Name) {
					rules = append(rules, policyRule{r, false})
				}
			}
		}
		return rules, nil
	}, func(p *page, rules []policyRule) {
		p.row("RULE", "IN FORCE", "SETTING", "SEVERITY", "REASON")
		for _, r := range rules {
			p.row(printable(r.Name), yesNo(r.InForce), r.Setting, r.Severity, short(r.Reason))
		}
	})
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (p Program) newPolicyTest() *cobra.Command {
	var rules string
	var at timeFlag
	trail := p.trail()
	return question("policy test", trail, forms("table", "json"), func(cmd *cobra.Command, source trailSource, _ []string) ([]workspace.PolicyStatus, error) {
		file := cmp.Or(rules, trail.config)
		if file == "" {
			return nil, misuse{errors.New("give --rules, a configuration FILE with the rules")}
		}
		cfg, _, err := p.Kinds.Config().Check(file)
		if err != nil {
			return nil, fmt.Errorf("%w; 'auditrelay config check' says more", err)
		}
		all, err := tryPolicies(cmd.Context(), source, cfg.Policies, at.orNow())
		return all, judged(all, err)
	}, printPolicies, text(&rules, "rules", "a configuration `FILE` with the rules (default: that of --config)"),
		parsed(&at, "at", "the settings at this time (default: now); "+timeFlagHelp))
}

// tryPolicies judges the settings of a trail.
func tryPolicies(ctx context.Context, source trailSource, p config.Policies, at time.Time) ([]workspace.PolicyStatus, error) {
	all := []workspace.PolicyStatus{}
	set, err := workspace.CompileRules(p.All())
	if err != nil {
		return nil, err
	}
	for _, setting := range set.Settings() {
		known, err := source.Settings(ctx, timeline.Filter{Setting: setting})
		if err != nil {
			return nil, err
		}
		for i := range known {
			s, err := source.At(ctx, known[i].Where, at)
			if err != nil {
				return nil, err
			}
			if s.Known && len(s.Value) > 0 { // it was there
				all = addViolations(all, s.Where, set.Judge(s.Project, s.Environment, setting, s.Value))
			}
		}
	}
	return all, nil
}

// addViolations adds what was found to its project or environment.
func addViolations(all []workspace.PolicyStatus, at timeline.Where, found []workspace.Violation) []workspace.PolicyStatus {
	i := slices.IndexFunc(all, func(s workspace.PolicyStatus) bool { return s.Project == at.Project && s.Environment == at.Environment })
	if i < 0 {
		i, all = len(all), append(all, workspace.PolicyStatus{Project: at.Project, Environment: at.Environment})
		all[i].Violations = []workspace.PolicyViolation{}
	}
	for _, v := range found {
		all[i].Violations = append(all[i].Violations, workspace.PolicyViolation{Violation: v})
	}
	return all
}

func (p Program) newPolicyStatus() *cobra.Command {
	return question("policy status", p.trail(), forms("table", "json"), func(cmd *cobra.Command, source trailSource, _ []string) ([]workspace.PolicyStatus, error) {
		all, newest := []workspace.PolicyStatus{}, map[timeline.Where]workspace.PolicyState{}
		err := source.Entries(cmd.Context(), timeline.Filter{Setting: workspace.SubjectPolicies}, func(e timeline.Entry) error {
			if !e.Unsound {
				newest[timeline.Where{Project: e.Project, Environment: e.Environment}] = workspace.PolicyStateOf(e.After)
			}
			return nil
		})
		for at, state := range newest {
			all = append(all, workspace.PolicyStatus{Project: at.Project, Environment: at.Environment, PolicyState: state})
		}
		slices.SortFunc(all, workspace.PolicyStatus.Compare)
		return all, judged(all, err)
	}, printPolicies)
}

func printPolicies(p *page, all []workspace.PolicyStatus) {
	if !slices.ContainsFunc(all, func(s workspace.PolicyStatus) bool { return len(s.Violations) > 0 }) {
		p.line("no rule is violated")
		return
	}
	p.row("ENVIRONMENT", "RULE", "SEVERITY", "SETTING", "WHY")
	for _, s := range all {
		for _, v := range s.Violations {
			why := cmp.Or(v.Fault, v.Reason)
			if v.Excepted != nil {
				why = "excepted until " + moment(v.Excepted.Until) + ": " + v.Excepted.Reason
			}
			p.row(printable(placeOf(s.Project, s.Environment)), printable(v.Rule), v.Severity, v.Setting, short(why))
		}
	}
}

// judged ends a command by whether a rule is violated, and not excepted.
func judged(all []workspace.PolicyStatus, err error) error {
	for _, s := range all {
		if err == nil {
			err = errTrouble.when(slices.ContainsFunc(s.Violations, func(v workspace.PolicyViolation) bool { return v.Excepted == nil }))
		}
	}
	return err
}
