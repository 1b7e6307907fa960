package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The types of entries about policies.
const (
	// TypePolicyViolated: a state of a setting violates a rule that was kept before.
	TypePolicyViolated = "policy.violated"
	// TypePolicyEnded: fewer rules are violated than before, or a violation is excepted.
	TypePolicyEnded = "policy.ended"
	// SubjectPolicies is the subject of both. The After of the newest entry of a project or an
	// environment is its [PolicyState].
	SubjectPolicies = "policies"
)

// PolicyState is which rules the settings of a project, or of an environment, violate.
type PolicyState struct {
	Violations []PolicyViolation `json:"violations"`
}

// PolicyViolation is a violation, and until when it is excepted, if it is.
type PolicyViolation struct {
	Violation
	Excepted *PolicyException `json:"excepted,omitempty"`
}

// PolicyException has a rule left unenforced for a while, in an environment or a project, or
// everywhere if both are empty.
type PolicyException struct {
	Rule        string    `json:"rule"`
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Until       time.Time `json:"until"`
	Reason      string    `json:"reason"`
}

func (e PolicyException) covers(rule string, at place, now time.Time) bool {
	return e.Rule == rule && now.Before(e.Until) && (e.Project == "" || e.Project == at.project) && (e.Environment == "" || e.Environment == at.environment)
}

// PolicyStateOf reads the After of an entry; one that cannot be read violates nothing.
func PolicyStateOf(after json.RawMessage) (s PolicyState) {
	_ = json.Unmarshal(after, &s) // nothing is known of it then
	return s
}

// Policies holds the settings in the trail against rules, and enters what they violate.
type Policies struct {
	options PoliciesOptions
	metric  *prometheus.GaugeVec

	mu    sync.Mutex
	state map[place]PolicyState // as last judged; guarded by mu
}

// PoliciesOptions configure the policies.
type PoliciesOptions struct {
	Trail      Trail
	Rules      *Rules
	Exceptions []PolicyException
	// Environments are those whose settings, and whose projects' settings, are judged.
	Environments []config.Environment
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

// place is an environment, or a project where the environment is empty.
type place struct{ project, environment string }

// NewPolicies judges nothing yet.
func NewPolicies(o PoliciesOptions) *Policies {
	p := &Policies{options: o, state: map[place]PolicyState{}, metric: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "auditrelay_policies_violated",
		Help: "Rules of policies that the settings violate at present, without those that are excepted.",
	}, []string{"project", "environment", "severity"})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(p.metric)
	}
	p.show(nil)
	return p
}

// judgeEvery is how often the trail is asked whether it has grown. A setting changes in the trail
// only, so that a trail that has not grown needs no further judgement until an exception ends.
const judgeEvery = 2 * time.Second

// Run judges the settings now, whenever the trail has grown, and when an exception ends.
func (p *Policies) Run(ctx context.Context) {
	var failing retry.Failure
	judged, until := int64(-1), time.Time{}
	for {
		end, err := p.options.Trail.End(ctx)
		if now := time.Now(); err == nil && (end != judged || !until.IsZero() && !now.Before(until)) {
			if err = p.Judge(ctx, now); err == nil {
				judged, until = end, p.nextEnd(now)
			}
		}
		if ctx.Err() == nil {
			failing.Tell(p.options.Logger, err, "the settings cannot be held against the policies; it is tried again", "the settings are held against the policies again")
		}
		if retry.Sleep(ctx, judgeEvery) != nil {
			return
		}
	}
}

// nextEnd is when the next exception ends; zero for never.
func (p *Policies) nextEnd(now time.Time) (next time.Time) {
	for _, e := range p.options.Exceptions {
		if e.Until.After(now) && (next.IsZero() || e.Until.Before(next)) {
			next = e.Until
		}
	}
	return next
}

// Judge holds the newest state of each setting against the rules, and enters the differences from
// what the trail says of the policies. A crash before an entry leaves it to the next call.
func (p *Policies) Judge(ctx context.Context, now time.Time) error {
	found, err := p.judge(ctx, now)
	if err != nil {
		return err
	}
	known, err := p.options.Trail.Newest(ctx, SubjectPolicies)
	if err != nil {
		return fmt.Errorf("read what is known of the policies: %w", err)
	}
	for _, e := range known { // also of environments that are not watched any more
		at := place{e.Project, e.Environment}
		if _, is := found[at]; !is {
			found[at] = PolicyState{}
		}
	}
	for at, state := range found {
		if err := p.enter(ctx, at, state); err != nil {
			return fmt.Errorf("enter what %s/%s violates: %w", at.project, at.environment, err)
		}
	}
	p.show(found)
	return nil
}

func (p *Policies) judge(ctx context.Context, now time.Time) (map[place]PolicyState, error) {
	found := map[place]PolicyState{}
	for _, setting := range p.options.Rules.Settings() {
		newest, err := p.options.Trail.Newest(ctx, setting)
		if err != nil {
			return nil, fmt.Errorf("read the states of %s: %w", setting, err)
		}
		for _, e := range newest {
			at := place{e.Project, e.Environment}
			if e.After == nil || !p.watches(at) {
				continue
			}
			state := found[at]
			for _, v := range p.options.Rules.Judge(e.Project, e.Environment, setting, e.After) {
				state.Violations = append(state.Violations, PolicyViolation{v, p.exception(v.Rule, at, now)})
			}
			found[at] = state
		}
	}
	for _, s := range found {
		slices.SortFunc(s.Violations, func(a, b PolicyViolation) int { return cmp.Compare(a.Rule, b.Rule) })
	}
	return found, nil
}

func (p *Policies) watches(at place) bool {
	return slices.ContainsFunc(p.options.Environments, func(e config.Environment) bool {
		return e.Project == at.project && (at.environment == "" || e.Environment == at.environment)
	})
}

// exception is the one that ends last.
func (p *Policies) exception(rule string, at place, now time.Time) (last *PolicyException) {
	for _, e := range p.options.Exceptions {
		if e.covers(rule, at, now) && (last == nil || e.Until.After(last.Until)) {
			last = &e
		}
	}
	return last
}

func (p *Policies) enter(ctx context.Context, at place, state PolicyState) error {
	if state.Violations == nil {
		state.Violations = []PolicyViolation{}
	}
	after := jsontext.Encode(state)
	e, err := audit.Update(ctx, p.options.Trail, at.project, at.environment, SubjectPolicies, func(last audit.Entry, found bool) (*audit.Entry, error) {
		was := PolicyStateOf(last.After)
		if bytes.Equal(jsontext.Encode(was), after) || !found && len(state.Violations) == 0 {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		e := &audit.Entry{Type: TypePolicyEnded, Before: last.After, After: after}
		d := compared(was, state)
		if len(d.Violated) > 0 {
			e.Type = TypePolicyViolated
		}
		e.Detail = jsontext.Encode(d)
		return e, nil
	})
	if e != nil && e.Type == TypePolicyViolated {
		p.options.Logger.Warn("a setting violates a policy", "project", at.project, "environment", at.environment, "entry", e.Index)
	}
	return err
}

// policyDetail is the Detail of the entries.
type policyDetail struct {
	Summary  string           `json:"summary"`
	Severity meaning.Severity `json:"severity"`
	// Violated are the rules that were kept, or excepted, before; Ended those that are kept, or
	// excepted, now.
	Violated []string `json:"violated,omitempty"`
	Ended    []string `json:"ended,omitempty"`
}

// compared tells what has changed between two states.
func compared(was, is PolicyState) (d policyDetail) {
	var fresh []Violation
	var texts []string
	for _, v := range is.Violations {
		if before, open := was.of(v.Rule); v.Excepted == nil && (!open || before.Excepted != nil) {
			fresh, d.Violated = append(fresh, v.Violation), append(d.Violated, v.Rule)
			texts = append(texts, "the policy "+v.Rule+" is violated by "+v.Setting+": "+cmp.Or(v.Fault, v.Reason))
		}
	}
	for _, v := range was.Violations {
		now, open := is.of(v.Rule)
		switch {
		case v.Excepted != nil && open:
			continue // it is still excepted, or violated again
		case !open:
			texts = append(texts, "the policy "+v.Rule+" is no longer violated")
		case now.Excepted != nil:
			texts = append(texts, fmt.Sprintf("the violation of the policy %s is excepted until %s: %s", v.Rule, now.Excepted.Until.UTC().Format(time.RFC3339), now.Excepted.Reason))
		default:
			continue
		}
		d.Ended = append(d.Ended, v.Rule)
	}
	d.Summary = cmp.Or(strings.Join(texts, "; "), "what is known of the violations of policies has changed")
	d.Severity = cmp.Or(meaning.Severity(worst(fresh)), meaning.Info)
	return d
}

func (s PolicyState) of(rule string) (PolicyViolation, bool) {
	i := slices.IndexFunc(s.Violations, func(v PolicyViolation) bool { return v.Rule == rule })
	if i < 0 {
		return PolicyViolation{}, false
	}
	return s.Violations[i], true
}

func (p *Policies) show(found map[place]PolicyState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = found
	p.metric.Reset()
	for _, e := range p.options.Environments {
		for _, severity := range config.Severities() {
			p.metric.WithLabelValues(e.Project, "", severity)
			p.metric.WithLabelValues(e.Project, e.Environment, severity)
		}
	}
	for at, state := range found {
		for _, v := range state.Violations {
			if v.Excepted == nil {
				p.metric.WithLabelValues(at.project, at.environment, v.Severity).Inc()
			}
		}
	}
}

// PolicyStatus is the state of a project or an environment, for /status.
type PolicyStatus struct {
	Project     string `json:"project"`
	Environment string `json:"environment,omitempty"`
	PolicyState
}

// Compare orders by project and environment.
func (s PolicyStatus) Compare(b PolicyStatus) int {
	return cmp.Or(cmp.Compare(s.Project, b.Project), cmp.Compare(s.Environment, b.Environment))
}

// Status lists the projects and environments whose settings were judged, sorted.
func (p *Policies) Status() (all []PolicyStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, state := range p.state {
		all = append(all, PolicyStatus{at.project, at.environment, PolicyState{append([]PolicyViolation{}, state.Violations...)}})
	}
	slices.SortFunc(all, PolicyStatus.Compare)
	return all
}
