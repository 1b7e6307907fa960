package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

const streamingPath = "/streaming"

// flowPage has the streams of environments.
type flowPage struct {
	environments
	Configs  configs
	Silences []health.Silence
	MayAct   bool
	// Watched says why the relay does not look after the streaming configs; empty: it does.
	Watched string
}

// configs are the states of streaming configs.
type configs []streaming.Health

// Of is that of an environment; nil: it has none.
func (c configs) Of(s health.Status) *streaming.Health {
	for i := range c {
		if c[i].Project == s.Project && c[i].Environment == s.Environment {
			return &c[i]
		}
	}
	return nil
}

func flowOf(a *asked) (any, error) {
	p := flowPage{MayAct: a.role >= access.Operator}
	unreadable, err := p.read(a, streamingPath, map[string]any{})
	if err == nil && len(unreadable) > 0 {
		err = errors.New(unreadable[0])
	}
	if err != nil {
		return nil, err
	}
	if p.Configs, err = a.client.Streaming(a.ctx); err != nil {
		p.Watched = err.Error()
	}
	p.Silences, err = a.client.Silences(a.ctx)
	return p, err
}

// historyPage is what was declared and observed of one environment, on one axis of time.
type historyPage struct {
	health.Status
	Config  *streaming.Health
	Hour    axis
	Minutes []minute // of the hour, the newest first
	Days    int
	Axis    axis
	Entries []timeline.Entry // of the axis, the newest first; mostHistory at most
	MayAct  bool
}

// Cut reports whether the axis may have more entries.
func (p historyPage) Cut() bool { return len(p.Entries) >= mostHistory }

// minute has the events that arrived in it.
type minute struct {
	From, Until time.Time
	Events      int64
}

// mostHistory bounds the entries of a history.
const mostHistory = 500

func historyOf(a *asked) (any, error) {
	project, environment := a.request.PathValue("project"), a.request.PathValue("environment")
	var found console.Environments
	unreadable, err := sections(a, map[string]any{"environments": &found}, &console.ChooseEnvironments{Project: project, Environment: environment, Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(unreadable) > 0:
		return nil, errors.New(unreadable[0])
	case len(found.Shown) == 0:
		return nil, &problem{404, "The relay looks after no such environment.", "Choose one in the list."}
	}
	p := historyPage{Status: found.Shown[0], Days: 1, MayAct: a.role >= access.Operator}
	if n, err := strconv.Atoi(a.value("days")); err == nil {
		p.Days = min(max(n, 1), 90)
	}
	now := time.Now().UTC()
	p.drawHour(now)
	p.Axis = axis{Name: "axis", From: now.AddDate(0, 0, -p.Days), Until: now}
	if all, err := a.client.StreamingOf(a.ctx, console.OfEnvironment{Project: project, Environment: environment}); err == nil {
		p.Config = configs(all).Of(p.Status)
	}
	return p, p.read(a)
}

// read fills the axis. One question gives all of its entries, since each goes over a long trail.
func (p *historyPage) read(a *asked) error {
	f := timeline.Filter{
		Type: "streaming.*,health.*,silence.*,credential*", Without: "streaming.checked",
		Project: p.Project, Environment: p.Environment, Since: p.Axis.From, Limit: mostHistory,
	}
	var err error
	if p.Entries, err = entries(a, f); err != nil {
		return err
	}
	declared, err := p.declared(a)
	if err != nil {
		return err
	}
	observed, err := p.observed(a)
	p.Axis.Lanes = []lane{declared, observed, p.gaps(), p.happened()}
	slices.Reverse(p.Entries)
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
		l.add(p.Axis, segment{From: g.Begun, Until: cmp.Or(g.Ended, p.Axis.Until), State: g.Reason + "; " + strings.TrimSuffix(g.Lost(), ","), Colour: "bad"})
	}
	return l
}

// happened makes a lane of the entries that are no states.
func (p *historyPage) happened() lane {
	l := lane{Name: "What happened"}
	for _, e := range p.Entries {
		if e.Type != health.TypeGap && e.Type != health.TypeChanged {
			l.add(p.Axis, segment{From: e.Time, State: marked(e.Type+": "+e.Summary, 300), Colour: "mark"})
		}
	}
	return l
}

// entries reads the entries that a filter chooses, whole.
func entries(a *asked, f timeline.Filter) (all []timeline.Entry, err error) {
	err = a.client.Entries(a.ctx, f, func(e timeline.Entry) error {
		all = append(all, e)
		return nil
	})
	return all, err
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
	return streamingPath + "/" + which.String()
}

// differing tells how the streaming config would change.
func differing(a *asked, which console.OfEnvironment) (p plan, err error) {
	p.Head = []string{"Field", "It is", "It would be"}
	err = planned(a, which, func(found *streaming.Preview) {
		for _, f := range found.Fields {
			if f.Differs {
				p.Rows = append(p.Rows, []string{f.Name, f.Is, f.WouldBe})
			}
		}
		if p.Says = []string{"The streaming config of " + which.String() + " is as it is desired."}; found.Differs {
			p.Says, p.Button = []string{"The streaming config of " + which.String() + " would be set at the provider."}, "Set it"
		}
		if found.Advice != "" {
			p.Says = append(p.Says, found.Advice)
		}
	})
	return p, err
}

// planned asks for the plan of an environment's streaming config.
func planned(a *asked, which console.OfEnvironment, yield func(*streaming.Preview)) error {
	return a.client.PlanStreaming(a.ctx, which, func(found console.Planned) error {
		if found.Error != "" {
			return &problem{409, found.Error, "Correct that first."}
		}
		yield(found.Preview)
		return nil
	})
}

func applyStream(a *asked) (prepared, error) {
	which := environmentOf(a)
	return prepared{
		plan: func() (plan, error) { return differing(a, which) },
		do: func() (done, error) {
			_, err := a.client.ApplyStreaming(a.ctx, which)
			return done{"The streaming config of " + which.String() + " is set.", backTo(which)}, err
		},
	}, nil
}

func rotateCredential(a *asked) (prepared, error) {
	which := environmentOf(a)
	return prepared{
		plan: func() (plan, error) {
			p := plan{Head: []string{"User name", "Kind", "Ends in", "State"}, Button: "Rotate it", Says: []string{
				"The relay would generate another push credential for " + which.String() + ", and set it at the provider.",
				"The present one stays valid for streaming.rotation_overlap, so that no push is refused.",
			}}
			if err := planned(a, which, func(*streaming.Preview) {}); err != nil {
				return p, err
			}
			listed, err := a.client.Credentials(a.ctx)
			for _, c := range listed {
				if c.Project == which.Project && c.Environment == which.Environment {
					p.Rows = append(p.Rows, []string{c.Username, c.Kind, c.LastFour, c.State})
				}
			}
			return p, err
		},
		do: func() (done, error) {
			_, err := a.client.Rotate(a.ctx, which)
			return done{"The push credential of " + which.String() + " is rotated.", backTo(which)}, err
		},
	}, nil
}

// addSilence reads a silence; the relay checks it when it is added.
func addSilence(a *asked) (prepared, error) {
	which := environmentOf(a)
	hours, err := strconv.ParseFloat(a.value("hours"), 64)
	if err != nil || !(hours > 0 && hours <= 720) || which.Reason == "" { // it may be no number at all, and is neither then
		return prepared{}, &problem{http.StatusBadRequest, "A silence needs a number of hours, up to 720, and a reason.", remedies[http.StatusBadRequest]}
	}
	s := console.AddSilence{Project: which.Project, Environment: which.Environment, For: int64(hours * 3600), Reason: which.Reason}
	of := cmp.Or(strings.Trim(which.String(), "/"), "All environments")
	return prepared{
		plan: func() (plan, error) {
			return plan{Button: "Silence it", Says: []string{
				fmt.Sprintf("%s would raise no alarm for %s, because: %s", of, time.Duration(s.For)*time.Second, s.Reason),
				"States, events and the audit trail are not hidden.",
			}}, nil
		},
		do: func() (done, error) {
			made, err := a.client.AddSilence(a.ctx, s)
			return done{"The silence " + made.ID + " is added, until " + stampOf(made.Until) + ".", backTo(which)}, err
		},
	}, nil
}

func endSilence(a *asked) (prepared, error) {
	id := a.value("silence")
	return prepared{
		plan: func() (plan, error) {
			list, err := a.client.Silences(a.ctx)
			i := slices.IndexFunc(list, func(s health.Silence) bool { return s.ID == id })
			if err == nil && i < 0 {
				err = &problem{http.StatusNotFound, "No such silence is active.", "It may have ended meanwhile."}
			}
			if err != nil {
				return plan{}, err
			}
			return plan{Button: "End it", Says: []string{fmt.Sprintf("The silence %s, until %s, would end now. Its reason was: %s", list[i].ID, stampOf(list[i].Until), list[i].Reason)}}, nil
		},
		do: func() (done, error) {
			was, err := a.client.EndSilence(a.ctx, console.EndSilence{ID: id})
			return done{"The silence " + was.ID + " is ended.", streamingPath}, err
		},
	}, nil
}
