package web

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	sinksPath   = "/sinks"
	sinkPath    = "/sinks/history/" // followed by its name
	lettersPath = "/sinks/letters"
)

// sinksPage has the sinks, and why letters are dead.
type sinksPage struct {
	Sinks   []console.Sink
	Reasons []*reason
	// Cut: there are more letters than were read for Reasons.
	Cut    bool
	MayAct bool
}

// reason is one for which a sink refused events.
type reason struct {
	Sink, Reason, Letters string
	Count                 int
	Newest                console.Letter
}

// mostGrouped bounds the letters that are read for their reasons.
const mostGrouped = 5000

func sinksOf(a *asked) (any, error) {
	p := sinksPage{MayAct: a.role >= access.Operator}
	var err error
	if p.Sinks, err = a.client.Sinks(a.ctx); err != nil {
		return nil, err
	}
	p.Reasons, p.Cut, err = reasonsOf(a, "")
	return p, err
}

// reasonsOf groups the dead letters of a sink, or of all, by their reasons. It tells whether there are
// more letters than were read.
func reasonsOf(a *asked, sink string) (list []*reason, cut bool, err error) {
	by, n := map[[2]string]*reason{}, 0
	err = a.client.Letters(a.ctx, console.ListLetters{Filter: deadletters.Filter{Sink: sink, Limit: mostGrouped}, Veiled: true}, func(l *console.Letter) error {
		key := [2]string{l.Sink, relay.Digitless(l.Reason)}
		if by[key] == nil {
			by[key] = &reason{Sink: l.Sink, Reason: l.Reason, Letters: lettersPath + "?" + url.Values{"sink": {l.Sink}, "reason": {longestPart(l.Reason)}}.Encode()}
		}
		by[key].Count++
		by[key].Newest = *l
		n++
		return nil
	})
	list = slices.SortedFunc(maps.Values(by), func(a, b *reason) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason)) })
	return list[:min(len(list), 50)], n >= mostGrouped, err
}

// longestPart is the longest part without numbers, which all reasons of a group have.
func longestPart(text string) string {
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	return slices.MaxFunc(append(strings.FieldsFunc(text, isDigit), ""), func(a, b string) int { return len(a) - len(b) })
}

// lettersPage is a list of dead letters.
type lettersPage struct {
	mistake
	Form    url.Values
	Letters []console.Letter
	MayAct  bool
}

// Acts are what can be done to all letters that fit.
func (p lettersPage) Acts() map[string]string {
	return map[string]string{"replay": "Replay all that fit", "discard": "Discard all that fit"}
}

// lettersShown is how many letters a page has.
const lettersShown = 100

// letterFilter reads the filter of a page or an action.
func letterFilter(a *asked) (f deadletters.Filter, err error) {
	f = deadletters.Filter{Sink: a.value("sink"), Reason: a.value("reason"), ID: a.value("id"), Project: a.value("project"), Environment: a.value("environment")}
	f.Since, f.Until, err = timesIn(a.request.Form)
	for name, into := range map[string]*uint64{"number": &f.Sequence, "through": &f.Through} {
		if text := a.value(name); text != "" && err == nil {
			if *into, err = strconv.ParseUint(text, 10, 64); err != nil {
				err = fmt.Errorf("the number %q cannot be read", cut(text, 40))
			}
		}
	}
	return f, err
}

func lettersOf(a *asked) (any, error) {
	p := lettersPage{Form: a.request.Form, MayAct: a.role >= access.Operator}
	f, err := letterFilter(a)
	if err != nil {
		p.Error = err.Error()
		return p, nil //nolint:nilerr // the page says what is wrong with the form
	}
	f.Limit = lettersShown
	return p, a.client.Letters(a.ctx, console.ListLetters{Filter: f, Veiled: true}, func(l *console.Letter) error {
		p.Letters = append(p.Letters, *l)
		return nil
	})
}

// letterPage is one dead letter.
type letterPage struct {
	*console.Letter
	Text   string // the body as this person may see it
	Veiled bool
	MayAct bool
}

func letterOf(a *asked) (any, error) {
	n, err := strconv.ParseUint(a.request.PathValue("number"), 10, 64)
	if err != nil || n == 0 {
		return nil, &problem{404, "There is no such dead letter.", "Choose one in the list."}
	}
	p := letterPage{Veiled: a.role < access.Auditor, MayAct: a.role >= access.Operator}
	err = a.client.Letters(a.ctx, console.ListLetters{Filter: deadletters.Filter{Sequence: n}, Bodies: true, Veiled: p.Veiled}, func(l *console.Letter) error {
		p.Letter, p.Text = l, marked(string(l.Body), 64<<10)
		return nil
	})
	if err == nil && p.Letter == nil {
		err = &problem{404, "There is no such dead letter.", "It may have been replayed or discarded meanwhile."}
	}
	return p, err
}

// piece is a piece of work that takes long, and has a dry run.
type piece struct {
	title string
	run   func(a *asked, dry bool, report func(*console.Progress)) error
	// tells makes the plan of a dry run.
	tells func(tried console.Progress) plan
}

func (p piece) prepared(a *asked) prepared {
	return prepared{
		plan: func() (plan, error) {
			var tried console.Progress
			err := p.run(a, true, func(now *console.Progress) { tried = *now })
			return p.tells(tried), err
		},
		do: func() (done, error) {
			return a.opts.jobs.begin(a, p.title, func(w *asked, report func(*console.Progress)) error { return p.run(w, false, report) })
		},
	}
}

// onLetters prepares a piece of work on dead letters. It will be done to those alone that are there now.
func onLetters(a *asked, title, would, further, button string, run func(*asked, deadletters.Filter, bool, func(*console.Progress)) error) (prepared, error) {
	f, err := letterFilter(a)
	return piece{
		title: title,
		run:   func(a *asked, dry bool, report func(*console.Progress)) error { return run(a, f, dry, report) },
		tells: func(tried console.Progress) plan {
			p := plan{
				Says: []string{fmt.Sprintf("%d dead letters would be %s.", tried.Matched, would), further},
				Head: []string{"Sink", "Letters"}, With: url.Values{"through": {strconv.FormatUint(tried.Last, 10)}},
			}
			for _, sink := range slices.Sorted(maps.Keys(tried.Sinks)) {
				p.Rows, p.Button = append(p.Rows, []string{sink, strconv.FormatUint(tried.Sinks[sink], 10)}), button
			}
			return p
		},
	}.prepared(a), badRequest(err)
}

func replayLetters(a *asked) (prepared, error) {
	const further = "A letter that is delivered is removed. One that is refused again stays, with its new reason."
	return onLetters(a, "Replay of dead letters", "handed to their sink again", further, "Replay them",
		func(a *asked, f deadletters.Filter, dry bool, report func(*console.Progress)) error {
			return a.client.ReplayLetters(a.ctx, console.ReplayLetters{Filter: f, DryRun: dry}, report)
		})
}

func discardLetters(a *asked) (prepared, error) {
	const further = "They will not reach their sink. The audit trail names each of them."
	return onLetters(a, "Discarding of dead letters", "removed for good", further, "Discard them",
		func(a *asked, f deadletters.Filter, dry bool, report func(*console.Progress)) error {
			return a.client.DiscardLetters(a.ctx, console.DiscardLetters{Filter: f, DryRun: dry}, report)
		})
}

// replaySpan hands kept events to a sink again.
func replaySpan(a *asked) (prepared, error) {
	req := console.ReplaySpan{Sink: a.value("sink"), Match: a.value("match")}
	var err error
	if req.Since, req.Until, err = timesIn(a.request.Form); err == nil && req.Since.IsZero() {
		err = errors.New("a replay by time needs the time that it begins at")
	}
	return piece{
		title: "Replay of a time to " + req.Sink,
		run: func(a *asked, dry bool, report func(*console.Progress)) error {
			req.DryRun = dry
			return a.client.ReplaySpan(a.ctx, req, report)
		},
		tells: func(tried console.Progress) plan {
			p := plan{Says: append([]string{fmt.Sprintf("%d events of %d records would be handed to the sink %s again; it may recognise those that it has.", tried.Matched, tried.Total, req.Sink)}, tried.Notes...)}
			if tried.Matched > 0 {
				p.Button = "Replay them"
			}
			return p
		},
	}.prepared(a), badRequest(err)
}

// sinkPage is what became of the deliveries to one sink.
type sinkPage struct {
	console.Sink
	History relay.History
	Hours   int // of the axis
	Axis    axis
	Spans   []span // of the axis, the newest first
	Reasons []*reason
	Cut     bool // there are more letters than were read for Reasons
}

// span is a part of the axis, with what happened in it.
type span struct {
	From, Until time.Time
	relay.Minute
}

// spansShown is how many spans an axis has.
const spansShown = 60

func sinkOf(a *asked) (any, error) {
	all, err := a.client.Sinks(a.ctx)
	if err != nil {
		return nil, err
	}
	name := a.request.PathValue("sink")
	i := slices.IndexFunc(all, func(s console.Sink) bool { return s.Name == name && s.Configured })
	if i < 0 {
		return nil, &problem{http.StatusNotFound, "The running configuration has no such sink.", "Choose one in the list."}
	}
	p := sinkPage{Sink: all[i], Hours: 1}
	if a.value("hours") == "12" {
		p.Hours = 12
	}
	if p.History, err = a.client.SinkHistory(a.ctx, console.OfSink{Name: name}); err != nil {
		return nil, err
	}
	p.draw(time.Now().UTC())
	p.Reasons, p.Cut, err = reasonsOf(a, name)
	return p, err
}

// draw makes the axis. Of what was before the history nothing is known.
func (p *sinkPage) draw(now time.Time) {
	step := time.Duration(p.Hours) * time.Hour / spansShown
	until := now.Truncate(step).Add(step)
	p.Axis = axis{Name: "axis", From: until.Add(-spansShown * step), Until: until}
	for i := range spansShown {
		from := p.Axis.From.Add(time.Duration(i) * step)
		p.Spans = append(p.Spans, span{From: from, Until: from.Add(step)})
	}
	for _, m := range p.History.Minutes {
		if i := int(m.Begun.Sub(p.Axis.From) / step); i >= 0 && i < spansShown && !m.Begun.Before(p.Axis.From) {
			s := &p.Spans[i]
			s.Delivered, s.Failed, s.Refused = s.Delivered+m.Delivered, s.Failed+m.Failed, s.Refused+m.Refused
		}
	}
	for _, l := range []struct {
		name, colour string
		of           func(span) int64
	}{
		{"Events delivered", "mark", func(s span) int64 { return s.Delivered }},
		{"Attempts failed", "bad", func(s span) int64 { return s.Failed }},
		{"Events refused", "warn", func(s span) int64 { return s.Refused }},
	} {
		p.Axis.Lanes = append(p.Axis.Lanes, p.bars(l.name, l.colour, l.of))
	}
	p.Spans = slices.DeleteFunc(p.Spans, func(s span) bool { return s.Until.Before(p.History.Since) })
	slices.Reverse(p.Spans)
}

// bars makes a lane of a number of each span.
func (p *sinkPage) bars(name, colour string, of func(span) int64) lane {
	l, numbers := lane{Name: name}, make([]int64, len(p.Spans))
	for i, s := range p.Spans {
		numbers[i] = of(s)
	}
	if p.History.Since.After(p.Axis.From) {
		l.add(p.Axis, segment{From: p.Axis.From, Until: p.History.Since, State: "not known: before the start of this process", Colour: "unknown"})
	}
	l.bars(p.Axis, colour, numbers)
	return l
}
