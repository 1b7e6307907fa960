package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

const streamingPath = "/streaming"

// flowPage has the streams of environments.
type flowPage struct {
	environments
	Rows     []flowRow
	Silences []health.Silence
	MayAct   bool
	// Watched says why the relay does not look after the streaming configs; empty: it does.
	Watched string
}

type flowRow struct {
	health.Status
	Config *streaming.Health
}

func flowOf(a *asked) (any, error) {
	p := flowPage{MayAct: a.role >= access.Operator}
	all, err := statuses(a)
	if err != nil {
		return nil, err
	}
	if p.environments, err = environmentsOf(a, streamingPath, all); err != nil {
		return nil, err
	}
	configs, err := a.client.Streaming(a.ctx)
	if err != nil {
		p.Watched = err.Error()
	}
	for _, s := range p.Shown {
		p.Rows = append(p.Rows, flowRow{s, configOf(configs, s)})
	}
	p.Silences, err = a.client.Silences(a.ctx)
	return p, err
}

// configOf is the streaming config of an environment; nil: it has none.
func configOf(all []streaming.Health, of health.Status) *streaming.Health {
	for i := range all {
		if all[i].Project == of.Project && all[i].Environment == of.Environment {
			return &all[i]
		}
	}
	return nil
}

func statuses(a *asked) (all []health.Status, err error) {
	sections, err := a.client.Status(a.ctx)
	if err == nil {
		err = section(sections["environments"], &all)
	}
	return all, err
}

// historyPage is what was declared and observed of one environment, on one axis of time.
type historyPage struct {
	flowRow
	Hour        axis
	Minutes     []minute // of the hour, the newest first
	Days        int
	Axis        axis
	Entries     []timeline.Row
	Credentials []credentials.Listed
	MayAct      bool
}

// minute has the events that arrived in it.
type minute struct {
	From, Until time.Time
	Events      int64
}

// mostHistory bounds the entries of a history.
const mostHistory = 500

func historyOf(a *asked) (any, error) {
	all, err := statuses(a)
	if err != nil {
		return nil, err
	}
	project, environment := a.request.PathValue("project"), a.request.PathValue("environment")
	i := slices.IndexFunc(all, func(s health.Status) bool { return s.Project == project && s.Environment == environment })
	if i < 0 {
		return nil, &problem{404, "The relay looks after no such environment.", "Choose one in the list."}
	}
	p := historyPage{flowRow: flowRow{Status: all[i]}, Days: 1, MayAct: a.role >= access.Operator}
	if n, err := strconv.Atoi(a.value("days")); err == nil {
		p.Days = min(max(n, 1), 90)
	}
	now := time.Now().UTC()
	p.drawHour(now)
	p.Axis = axis{Name: "axis", From: now.AddDate(0, 0, -p.Days), Until: now}
	if configs, err := a.client.Streaming(a.ctx); err == nil {
		p.Config = configOf(configs, all[i])
	}
	if err := p.read(a); err != nil {
		return nil, err
	}
	if p.MayAct {
		listed, err := a.client.Credentials(a.ctx)
		if err != nil {
			return nil, err
		}
		p.Credentials = slices.DeleteFunc(listed, func(c credentials.Listed) bool { return c.Project != project || c.Environment != environment })
	}
	slices.Reverse(p.Entries)
	return p, nil
}

// read fills the axis.
func (p *historyPage) read(a *asked) error {
	declared, err := p.Axis.declared(a, p.Status)
	if err != nil {
		return err
	}
	observed, err := p.Axis.observed(a, p.Status)
	if err != nil {
		return err
	}
	happened, err := p.happened(a)
	p.Axis.Lanes = []lane{declared, observed, p.gaps(), happened}
	return err
}

// drawHour makes the axis of the events by minute.
func (p *historyPage) drawHour(now time.Time) {
	if len(p.EventsByMinute) == 0 {
		return
	}
	until, l := now.Truncate(time.Minute), lane{Name: "Events by minute"}
	p.Hour = axis{Name: "hour", From: until.Add(-time.Duration(len(p.EventsByMinute)) * time.Minute), Until: until}
	l.bars(p.Hour, "mark", p.EventsByMinute)
	p.Hour.Lanes = []lane{l}
	for _, n := range slices.Backward(p.EventsByMinute) {
		from := until.Add(-time.Minute)
		p.Minutes = append(p.Minutes, minute{from, until, n})
		until = from
	}
}

// gaps makes the lane of the gaps, with what was lost in each.
func (p *historyPage) gaps() lane {
	l := lane{Name: "Gaps"}
	all := slices.Clone(p.Gaps)
	if p.Gap != nil {
		all = append(all, *p.Gap)
	}
	for _, g := range all {
		end := g.Ended
		if end.IsZero() {
			end = p.Axis.Until
		}
		l.add(p.Axis, segment{From: g.Begun, Until: end, State: g.Reason + "; " + strings.TrimSuffix(g.Lost(), ","), Colour: "bad"})
	}
	return l
}

// happened reads the entries about the stream, and makes a lane of those that are no states.
func (p *historyPage) happened(a *asked) (lane, error) {
	l := lane{Name: "What happened"}
	for _, kind := range []string{"streaming.*", "health.*", "silence.*", "credential*"} {
		f := timeline.Filter{Type: kind, Without: "streaming.checked", Project: p.Project, Environment: p.Environment, Since: p.Axis.From, Limit: mostHistory}
		rows, err := listed(a, f)
		if err != nil {
			return l, err
		}
		p.Entries = append(p.Entries, rows...)
	}
	slices.SortFunc(p.Entries, func(a, b timeline.Row) int { return cmp.Compare(a.Index, b.Index) })
	for _, e := range p.Entries {
		if e.Type != health.TypeGap && e.Type != health.TypeChanged {
			l.add(p.Axis, segment{From: e.Time, State: marked(e.Type+": "+e.Summary, 300), Colour: "mark"})
		}
	}
	return l, nil
}

// listed reads the rows that a filter chooses.
func listed(a *asked, f timeline.Filter) (rows []timeline.Row, err error) {
	err = a.client.List(a.ctx, console.ListTrail{Filter: f}, func(r timeline.Row) error {
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

func stampOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// environmentOf is the environment of an action, with the person's reason.
func environmentOf(a *asked) console.OfEnvironment {
	return console.OfEnvironment{Project: a.value("project"), Environment: a.value("environment"), Reason: cut(a.value("reason"), 500)}
}

func backTo(which console.OfEnvironment) string {
	if which.Project == "" {
		return streamingPath
	}
	return streamingPath + "/" + which.Project + "/" + which.Environment
}

func planApply(a *asked) (p plan, err error) {
	which := environmentOf(a)
	p.Head = []string{"Field", "It is", "It would be"}
	err = a.client.PlanStreaming(a.ctx, which, func(found console.Planned) error {
		if found.Error != "" {
			return &problem{409, found.Error, "Correct that first."}
		}
		for _, f := range found.Preview.Fields {
			if f.Differs {
				p.Rows = append(p.Rows, []string{f.Name, f.Is, f.WouldBe})
			}
		}
		if p.Says = []string{"The streaming config of " + which.Project + "/" + which.Environment + " is as it is desired."}; found.Preview.Differs {
			p.Says, p.Button = []string{"The streaming config of " + which.Project + "/" + which.Environment + " would be set at the provider."}, "Set it"
		}
		if found.Preview.Advice != "" {
			p.Says = append(p.Says, found.Preview.Advice)
		}
		return nil
	})
	return p, err
}

func doApply(a *asked) (done, error) {
	which := environmentOf(a)
	_, err := a.client.ApplyStreaming(a.ctx, which)
	return done{"The streaming config of " + which.Project + "/" + which.Environment + " is set.", backTo(which)}, err
}

func planRotate(a *asked) (plan, error) {
	which := environmentOf(a)
	err := a.client.PlanStreaming(a.ctx, which, func(found console.Planned) error {
		if found.Error != "" {
			return &problem{409, found.Error, "Correct that first."}
		}
		return nil
	})
	if err != nil {
		return plan{}, err
	}
	listed, err := a.client.Credentials(a.ctx)
	p := plan{Head: []string{"User name", "Kind", "Ends in", "State"}, Button: "Rotate it", Says: []string{
		"The relay would generate another push credential for " + which.Project + "/" + which.Environment + ", and set it at the provider.",
		"The present one stays valid for streaming.rotation_overlap, so that no push is refused.",
	}}
	for _, c := range listed {
		if c.Project == which.Project && c.Environment == which.Environment {
			p.Rows = append(p.Rows, []string{c.Username, c.Kind, c.LastFour, c.State})
		}
	}
	return p, err
}

func doRotate(a *asked) (done, error) {
	which := environmentOf(a)
	_, err := a.client.Rotate(a.ctx, which)
	return done{"The push credential of " + which.Project + "/" + which.Environment + " is rotated.", backTo(which)}, err
}

// silenceOf reads a silence; the relay checks it when it is added.
func silenceOf(a *asked) (console.AddSilence, error) {
	which := environmentOf(a)
	hours, err := strconv.ParseFloat(a.value("hours"), 64)
	if err != nil || !(hours > 0 && hours <= 720) || which.Reason == "" { // it may be no number at all, and is neither then
		return console.AddSilence{}, &problem{400, "A silence needs a number of hours, up to 720, and a reason.", remedies[400]}
	}
	return console.AddSilence{Project: which.Project, Environment: which.Environment, For: int64(hours * 3600), Reason: which.Reason}, nil
}

func planSilence(a *asked) (plan, error) {
	s, err := silenceOf(a)
	return plan{Button: "Silence it", Says: []string{
		fmt.Sprintf("%s would raise no alarm for %s, because: %s", cmp.Or(strings.Trim(s.Project+"/"+s.Environment, "/"), "All environments"), time.Duration(s.For)*time.Second, s.Reason),
		"States, events and the audit trail are not hidden.",
	}}, err
}

func doSilence(a *asked) (done, error) {
	s, err := silenceOf(a)
	if err != nil {
		return done{}, err
	}
	made, err := a.client.AddSilence(a.ctx, s)
	return done{"The silence " + made.ID + " is added, until " + stampOf(made.Until) + ".", backTo(environmentOf(a))}, err
}

func planEndSilence(a *asked) (plan, error) {
	list, err := a.client.Silences(a.ctx)
	i := slices.IndexFunc(list, func(s health.Silence) bool { return s.ID == a.value("silence") })
	if err == nil && i < 0 {
		err = &problem{404, "No such silence is active.", "It may have ended meanwhile."}
	}
	if err != nil {
		return plan{}, err
	}
	return plan{Button: "End it", Says: []string{fmt.Sprintf("The silence %s, until %s, would end now. Its reason was: %s", list[i].ID, stampOf(list[i].Until), list[i].Reason)}}, nil
}

func doEndSilence(a *asked) (done, error) {
	was, err := a.client.EndSilence(a.ctx, console.EndSilence{ID: a.value("silence")})
	return done{"The silence " + was.ID + " is ended.", streamingPath}, err
}
