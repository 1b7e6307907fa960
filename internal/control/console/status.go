package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// AskStatus asks for /status. Its zero value asks for all of it.
type AskStatus struct {
	// Sections are those that are wanted; empty: all of them. "verdict" is a [Verdict] of the others.
	Sections []string `json:"sections,omitempty"`
	// Environments, where it is set, chooses of the section "environments", whose form is then
	// [Environments].
	Environments *ChooseEnvironments `json:"environments,omitempty"`
}

// ChooseEnvironments chooses environments, those in trouble first and then by the severity of their
// states.
type ChooseEnvironments struct {
	// Project and Environment name one; empty: all of them.
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Words are a part of its name, in letters of any case, and State is its state; empty: any.
	Words string       `json:"words,omitempty"`
	State health.State `json:"state,omitempty"`
	// From is how many of those that fit are left out, and Limit how many come after them.
	From  int `json:"from,omitempty"`
	Limit int `json:"limit"`
}

// Environments are those that were chosen, and how many there are.
type Environments struct {
	All      int `json:"all"`
	Troubled int `json:"troubled"` // of all: somebody should do something
	// States counts all of them, the worst state first.
	States []StateCount `json:"states"`
	// Fitting is how many fit. Shown are those after the first From of them.
	Fitting int             `json:"fitting"`
	From    int             `json:"from"`
	Shown   []health.Status `json:"shown"`
}

// StateCount is how many environments have a state.
type StateCount struct {
	State health.State `json:"state"`
	N     int          `json:"n"`
}

// Status gives sections of /status, by name.
func (c *Client) Status(ctx context.Context, req AskStatus) (sections map[string]json.RawMessage, err error) {
	return sections, c.call(ctx, "/v1/status", req, &sections)
}

// status leaves choosing to the relay: most of a thousand environments would be written and read for
// nothing.
func (s *Server) status(ctx context.Context, req AskStatus) (map[string]any, error) {
	sections := s.sections(ctx, req.Sections)
	if all, are := sections["environments"].([]health.Status); are && req.Environments != nil {
		sections["environments"] = req.Environments.of(all)
	}
	return sections, nil
}

// sections reads those that are named, or all where none is named, and makes the verdict if it is among
// them.
func (s *Server) sections(ctx context.Context, names []string) map[string]any {
	if len(names) > 0 && !slices.Contains(names, verdictSection) {
		return s.opts.Status(ctx, names...)
	}
	read := names
	if len(names) > 0 {
		read = slices.Concat(names, judged)
	}
	all := s.opts.Status(ctx, read...)
	all[verdictSection] = Judge(all)
	maps.DeleteFunc(all, func(name string, _ any) bool { return len(names) > 0 && !slices.Contains(names, name) })
	return all
}

func (c *ChooseEnvironments) of(all []health.Status) Environments {
	e := Environments{All: len(all)}
	counts := map[health.State]int{}
	var fitting []*health.Status
	for i := range all {
		counts[all[i].State]++
		if troubled(&all[i]) {
			e.Troubled++
		}
		if c.fits(&all[i]) {
			fitting = append(fitting, &all[i])
		}
	}
	for _, state := range slices.SortedFunc(maps.Keys(counts), worstFirst) {
		e.States = append(e.States, StateCount{state, counts[state]})
	}
	slices.SortStableFunc(fitting, func(a, b *health.Status) int {
		if first := troubled(a); first == troubled(b) {
			return worstFirst(a.State, b.State)
		} else if first {
			return -1
		}
		return 1
	})
	e.Fitting, e.From = len(fitting), min(max(c.From, 0), len(fitting))
	for _, s := range fitting[e.From:min(e.From+max(c.Limit, 0), len(fitting))] {
		e.Shown = append(e.Shown, *s)
	}
	return e
}

func (c *ChooseEnvironments) fits(s *health.Status) bool {
	named := (c.Project == "" || c.Project == s.Project) && (c.Environment == "" || c.Environment == s.Environment)
	return named && (c.State == "" || c.State == s.State) && strings.Contains(strings.ToLower(s.Project+"/"+s.Environment), strings.ToLower(c.Words))
}

// severities ascend.
var severities = []meaning.Severity{meaning.Info, meaning.Low, meaning.Medium, meaning.High, meaning.Critical}

func worstFirst(a, b health.State) int {
	return cmp.Or(slices.Index(severities, b.Severity())-slices.Index(severities, a.Severity()), cmp.Compare(a, b))
}

// Reload asks for the edited configuration to be applied.
type Reload struct {
	// DryRun tells what would change, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// File is the absolute path of another configuration file to compare with, in a dry run; empty
	// for the relay's own. The relay reads it.
	File string `json:"file,omitempty"`
}

// Reloaded is the result of a reload.
type Reloaded struct {
	// Applied: the relay runs with the edited configuration. It is false after a dry run, and where
	// a change takes a restart: then nothing at all was applied.
	Applied bool `json:"applied"`
	DryRun  bool `json:"dry_run"`
	// Refused is why a reload would be refused, after a dry run: a part of the configuration cannot be used, such
	// as a sink's certificate. It says nothing about changes that take a restart.
	Refused string `json:"refused,omitempty"`
	// Changes are the fields that differ from the running configuration.
	Changes []config.Change `json:"changes"`
	// Files are fields whose files have changed, while their names have not.
	Files []string `json:"files"`
	// ChangingOver are sinks that still finish a delivery as they were before. Each goes on with its
	// new configuration when that has ended, and holds up nothing else.
	ChangingOver []string `json:"changing_over"`
	// ConfigSHA256 is the hash of the configuration's outline, as in the audit trail's entries.
	ConfigSHA256 string `json:"config_sha256"`
}

// Restarts are the changes that take a restart.
func (r *Reloaded) Restarts() []config.Change {
	return slices.DeleteFunc(slices.Clone(r.Changes), func(c config.Change) bool { return c.Rule != config.Restart })
}

func (s *Server) reload(ctx context.Context, req Reload) (Reloaded, error) {
	if req.File != "" && !req.DryRun {
		return Reloaded{}, refuse(http.StatusBadRequest, "a relay reloads the file that it was started with; another one can only be compared with it")
	}
	done, err := s.opts.Reload(ctx, req)
	if err != nil {
		return done, refuse(http.StatusConflict, "%v", err)
	}
	return done, nil
}

// Reload applies the edited configuration of the relay.
func (c *Client) Reload(ctx context.Context, req Reload) (done Reloaded, err error) {
	return done, c.call(ctx, "/v1/reload", req, &done)
}

// The words of a verdict.
const (
	AllWell     = "ok"      // nothing is wrong
	NotAllKnown = "unknown" // nothing is known to be wrong, and not all is known
	Trouble     = "trouble" // something is wrong
)

// fillingWithin: a journal that is full within this time is trouble.
const fillingWithin = 4 * time.Hour

// Verdict is the answer to "is every event log flowing, and does every sink get it?". The command line
// and the console in the browser show the same one.
type Verdict struct {
	Verdict  string    `json:"verdict"` // ok, unknown or trouble
	Troubles []Finding `json:"troubles"`
	Unknown  []Finding `json:"unknown"`
}

// Finding is a trouble or a doubt.
type Finding struct {
	Section string `json:"section"` // of /status, which has more about it
	What    string `json:"what"`    // in a clause
	// Remedy says what to do about it; empty where the section has it, or there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// verdictSection is the name of the verdict among the sections of a [Client]'s status.
const verdictSection = "verdict"

// judged are the sections of /status that a verdict is made of.
var judged = []string{"environments", "journal", "ready", "settings", "sinks", "streaming", "workspace"}

// Judge makes a verdict of sections of /status, as the relay reads them. A section that is not there is
// no trouble; one that the relay cannot read is. A silenced environment never is.
func Judge(sections map[string]any) Verdict {
	v := Verdict{Troubles: []Finding{}, Unknown: []Finding{}}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		if _, failed := sections[name].(map[string]string); failed {
			v.Unreadable(name)
		}
	}
	v.environments(of[[]health.Status](sections, "environments"))
	for _, h := range of[[]streaming.Health](sections, "streaming") {
		if h.Fight != nil {
			v.trouble("streaming", h.Advice, "somebody else sets the stream of %s/%s again and again", h.Project, h.Environment)
		}
	}
	v.sinks(of[[]Sink](sections, "sinks"))
	v.parts(of[admin.Readiness](sections, "ready"))
	v.journal(of[journal.Usage](sections, "journal"))
	v.workspace(sections)
	v.conclude()
	return v
}

// of is a section of a type; zero where it is another one, or not there.
func of[T any](sections map[string]any, name string) T {
	section, _ := sections[name].(T)
	return section
}

// Unreadable adds a section that cannot be read.
func (v *Verdict) Unreadable(section string) {
	f := Finding{Section: section, What: fmt.Sprintf("the section %s cannot be read", section)}
	if !slices.Contains(v.Troubles, f) {
		v.Troubles = append(v.Troubles, f)
	}
	v.conclude()
}

func (v *Verdict) conclude() {
	switch {
	case len(v.Troubles) > 0:
		v.Verdict = Trouble
	case len(v.Unknown) > 0:
		v.Verdict = NotAllKnown
	default:
		v.Verdict = AllWell
	}
}

func (v *Verdict) trouble(section, remedy, format string, args ...any) {
	v.Troubles = append(v.Troubles, Finding{section, fmt.Sprintf(format, args...), remedy})
}

func (v *Verdict) environments(all []health.Status) {
	for i := range all {
		e := &all[i]
		switch {
		case troubled(e):
			v.trouble("environments", e.Action, "%s/%s is %s", e.Project, e.Environment, e.State)
		case e.State.Severity() == meaning.Low && !e.Silenced:
			v.Unknown = append(v.Unknown, Finding{"environments", fmt.Sprintf("%s/%s is %s", e.Project, e.Environment, e.State), e.Action})
		}
	}
}

// troubled reports whether an environment's state is one that somebody should do something about.
func troubled(e *health.Status) bool {
	return !e.Silenced && slices.Index(severities, e.State.Severity()) > slices.Index(severities, meaning.Low)
}

func (v *Verdict) sinks(all []Sink) {
	for i := range all {
		if found := all[i].Trouble(); found != "" {
			v.trouble("sinks", strings.Join(all[i].Remedies(), "; "), "sink %s %s", all[i].Name, found)
		}
	}
}

func (v *Verdict) journal(u journal.Usage) {
	if u.SecondsToFull == nil || *u.SecondsToFull >= fillingWithin.Seconds() {
		return
	}
	left := max(time.Minute, time.Duration(*u.SecondsToFull*float64(time.Second)).Truncate(time.Minute))
	v.trouble("journal", "see why the sinks do not deliver, or raise journal.max_bytes", "the journal is full in %s", strings.TrimSuffix(left.String(), "0s"))
}

// parts adds the parts that no other section judges, and those that keep pushes from being taken.
func (v *Verdict) parts(ready admin.Readiness) {
	for _, p := range ready.Parts {
		switch {
		case p.State == "not_ready":
			v.trouble("ready", "", "pushes are refused (%s): %s", p.Name, p.Reason)
		case p.State == "warning" && !HasSection(p.Name):
			v.trouble("ready", "", "%s: %s", p.Name, p.Reason)
		}
	}
}

// HasSection reports whether a part of /readyz is judged by a section of /status.
func HasSection(part string) bool {
	return slices.Contains([]string{"sinks", "environments", "workspace", "dead letters"}, part)
}

func (v *Verdict) workspace(sections map[string]any) {
	reach, watched := sections["workspace"].(management.Reach)
	switch {
	case reach.Cause != "":
		v.trouble("workspace", unreachableRemedy(reach.Cause), "the management API cannot be used (%s)", reach.Cause)
		return // no setting can be read then
	case watched && !reach.Known:
		v.Unknown = append(v.Unknown, Finding{"workspace", "the management API has not been asked yet", ""})
	}
	failing := 0
	for _, s := range of[[]workspace.SettingStatus](sections, "settings") {
		if s.Error != "" {
			failing++
		}
	}
	switch {
	case failing == 1:
		v.trouble("settings", "", "1 setting cannot be read")
	case failing > 0:
		v.trouble("settings", "", "%d settings cannot be read", failing)
	}
}

// unreachableRemedy is what mends a management API that cannot be used.
func unreachableRemedy(cause management.Cause) string {
	switch cause {
	case management.CauseUnauthorized:
		return "correct workspace.key_id and workspace.secret in the configuration and restart the relay, or give the key its rights back in the dashboard"
	case management.CauseThrottled:
		return "lower workspace.requests_per_second, or stop others that use the API of this workspace; it goes on by itself"
	}
	return "see that workspace.base_url can be reached from here (name, network, proxy, TLS), or ask the provider; it goes on by itself"
}
