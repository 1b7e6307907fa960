package web

import (
	"net/http"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/relay"
)

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
