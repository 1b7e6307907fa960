package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// screen is the whole of the one screen. Drawing it is a pure function.
type screen struct {
	status relayStatus
	past   past // empty without --watch
	// lost is why the relay cannot be asked at present, since when; empty: it answers.
	lost string
}

// draw gives the lines of a screen. They fit from 80 columns on.
func (s *screen) draw(b brush, width int) []string {
	width = max(width, 20)
	lines := s.head(b, width)
	for _, section := range [][]string{s.environments(b, width), s.sinks(b, width), s.rest(b, width)} {
		lines = append(append(lines, ""), section...)
	}
	return lines
}

func (s *screen) head(b brush, width int) (lines []string) {
	i := map[string]ink{console.AllWell: inkGood, console.Trouble: inkTrouble, console.NotAllKnown: inkUnknown}[s.status.verdict().Verdict]
	text := s.status.verdictLine()
	if s.lost != "" {
		i, text = inkTrouble, "THE RELAY CANNOT BE ASKED: "+s.lost+"; below is its last answer"
	}
	wrapped := wrap(text, width)
	if len(wrapped) > headLines {
		wrapped = append(wrapped[:headLines-1], cut(wrapped[headLines-1], width-2)+" …")
	}
	for _, line := range wrapped {
		lines = append(lines, b.paint(i, line))
	}
	r := s.status.Relay
	about := "auditrelay " + r.Version
	if !r.Started.IsZero() {
		about += ", up " + spanText(r.Now.Sub(r.Started).Seconds())
	}
	about += ", at " + r.Now.UTC().Format(time.RFC3339)
	if r.DataDir != "" {
		about += ", in " + r.DataDir
	}
	return append(lines, b.paint(inkFaint, cut(about, width)))
}

// headLines is the room of the verdict.
const headLines = 4

func (s *screen) environments(b brush, width int) []string {
	g := grid{columns: []column{
		{title: "ENVIRONMENT", flex: true},
		{title: "STATE"},
		{title: "SINCE", right: true, rank: 6},
		{title: "PUSHED", right: true, rank: 1},
		{title: "EV/S", right: true, rank: 2},
		{title: "USUAL", right: true, rank: 4},
		{title: "LATE", right: true, rank: 9},
		{title: "LOST", right: true, rank: 3},
		{title: "DECLARED", rank: 8},
		{title: "GOES TO", rank: 10},
		{title: "TREND", rank: 7},
	}}
	for _, e := range byTrouble(s.status.Environments) {
		g.add(s.notes(&e), s.cells(&e)...)
	}
	return s.section(b, width, "environments", "no environments", &g)
}

// section is a table of the screen, or why there is none.
func (s *screen) section(b brush, width int, name, none string, g *grid) []string {
	if reason, failed := s.status.unreadable[name]; failed {
		return noteLines(b, inked{strings.ToUpper(name) + " cannot be read: " + reason, inkTrouble}, "", width)
	}
	if len(g.rows) == 0 {
		return []string{b.paint(inkFaint, none)}
	}
	return g.lines(b, width)
}

// byTrouble puts the environments with trouble first.
func byTrouble(all []health.Status) []health.Status {
	weight := map[ink]int{inkTrouble: 3, inkWarning: 2, inkUnknown: 1}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b health.Status) int { return weight[stateInk(&b)] - weight[stateInk(&a)] })
	return sorted
}

func (s *screen) cells(e *health.Status) []inked {
	name := e.Project + "/" + e.Environment
	declared := inked{string(e.Declared.Status), inkPlain}
	switch {
	case declared.text == "":
		declared.text = "-"
	case e.Declared.Stale:
		declared = inked{declared.text + "?", inkWarning}
	case declared.text != "ACTIVE":
		declared.ink = inkWarning
	}
	late, usual := "-", "-"
	if u := e.Observed.ExpectedEventsPerSecond; u != nil {
		usual = rateText(*u)
	}
	if p := e.Observed.Lateness.P99; p != nil {
		late = spanText(*p)
	}
	return []inked{
		{name, inkPlain},
		{string(e.State), stateInk(e)},
		{s.age(e.Since), inkPlain},
		{s.age(e.Observed.LastPush), inkPlain},
		{rateText(e.Observed.EventsPerSecond), inkPlain},
		{usual, inkFaint},
		{late, inkPlain},
		lostCell(e), declared,
		{goesTo(e), inkPlain},
		{s.past.spark("environment " + name), inkGood},
	}
}

// The words for where events go, where it is no host and no site.
const (
	thisRelay = "this relay"
	nowhere   = "nowhere"
)

// goesTo says where an environment's events go: the host or the site in the API's last
// answer, unless they arrive here. Before any answer only a stream meant for this relay is known.
func goesTo(e *health.Status) string {
	d := &e.Declared
	elsewhere := slices.ContainsFunc(d.Differs, func(field string) bool {
		return field == "destination_type" || field == "hostname" || field == "site"
	})
	switch {
	case (e.Destination == "relay" || e.Observed.EventsPerSecond > 0) && !elsewhere:
		return thisRelay
	case d.DestinationType == management.Datadog:
		return strings.TrimSpace("Datadog " + d.Destination)
	case d.Destination != "":
		return d.Destination
	case d.At.IsZero():
		return "-"
	}
	return cmp.Or(string(d.DestinationType), nowhere)
}

// lostCell sums up the gaps: the last ten, and the open one.
func lostCell(e *health.Status) inked {
	lost := 0.0
	for i := range e.Gaps {
		lost += missed(&e.Gaps[i])
	}
	if e.Gap != nil {
		lost += missed(e.Gap)
	}
	if lost < 0.5 {
		return inked{"-", inkPlain}
	}
	return inked{"~" + numberText(lost), inkWarning}
}

// notes are the lines below an environment: the reason, the remedy and the newest gap.
func (s *screen) notes(e *health.Status) (notes []inked) {
	if e.State != health.Flowing {
		if e.Reason != "" {
			notes = append(notes, inked{e.Reason, inkPlain})
		}
		if e.Action != "" {
			notes = append(notes, inked{"do: " + e.Action, inkStrong})
		}
	}
	if f := s.status.fight(e); f != nil {
		notes = append(notes, inked{fmt.Sprintf("somebody else sets the stream again and again: %s undone since %s", count(f.Undone, "change"), clock(f.Since)), inkTrouble})
	}
	if e.Silenced {
		notes = append(notes, inked{"silenced: it raises no alarm", inkFaint})
	}
	if e.Declared.Stale {
		notes = append(notes, inked{"the API was last read " + cmp.Or(s.ago(e.Declared.At), "before the start"), inkWarning})
	}
	switch to := goesTo(e); to {
	case thisRelay, "-":
	case nowhere:
		notes = append(notes, inked{"its events go nowhere", inkFaint})
	default:
		notes = append(notes, inked{"its events go to " + to + ", not to this relay", inkFaint})
	}
	if g := e.Gap; g != nil {
		notes = append(notes, inked{fmt.Sprintf("gap since %s (%s): about %s events missed so far", clock(g.Begun), g.Cause, numberText(missed(g))), inkWarning})
	}
	for i := range e.Gaps {
		g := &e.Gaps[i]
		told := e.State == health.Gapped && g.Ended.Equal(e.Since) // by the reason
		if !told && s.status.Relay.Now.Sub(g.Ended) < 24*time.Hour {
			notes = append(notes, inked{fmt.Sprintf("gap from %s to %s (%s): %s", clock(g.Begun), clock(g.Ended), g.Cause, strings.TrimRight(g.Lost(), ",:")), inkFaint})
		}
	}
	return notes
}

func clock(t time.Time) string { return t.UTC().Format("01-02 15:04:05") }

func (s *screen) sinks(b brush, width int) []string {
	g := grid{columns: []column{
		{title: "SINK", flex: true},
		{title: "STATE"},
		{title: "BEHIND", right: true},
		{title: "OLDEST", right: true, rank: 1},
		{title: "DELIVERED", right: true, rank: 2},
		{title: "LETTERS", right: true, rank: 4},
		{title: "EV/S", right: true, rank: 3},
		{title: "TREND", rank: 5},
	}}
	for i := range s.status.Sinks {
		sink := &s.status.Sinks[i]
		name, key := sink.Name, "sink "+sink.Name
		if sink.Kind != "" && sink.Kind != sink.Name {
			name += " (" + sink.Kind + ")"
		}
		letters := inked{numberText(float64(sink.DeadLetters)), inkPlain}
		if sink.DeadLetters > 0 {
			letters.ink = inkWarning
		}
		last := "-"
		if sink.Delivery != nil {
			last = cmp.Or(s.ago(sink.LastSuccess), "never")
		}
		g.add(sinkNotes(sink), inked{name, inkPlain}, inked{string(sink.Condition()), conditionInk(sink.Condition())}, inked{behind(sink), inkPlain}, inked{s.age(sink.OldestUnacknowledged), inkPlain},
			inked{last, inkPlain}, letters, inked{s.past.rate(key), inkPlain}, inked{s.past.spark(key), inkGood})
	}
	return s.section(b, width, "sinks", "no sinks: events are kept for a while, and delivered to nobody", &g)
}

// behind is how many events a sink has not acknowledged.
func behind(s *console.Sink) string {
	switch {
	case s.Position == nil || s.Position.Unknown != "":
		return "?"
	case s.LagEvents != nil:
		return numberText(float64(*s.LagEvents))
	case s.Position.Pending == 0:
		return "0"
	}
	return count(int(s.Position.Pending), "record")
}

func sinkNotes(s *console.Sink) (notes []inked) {
	if s.Delivery != nil && !s.FailingSince.IsZero() {
		class := strings.TrimPrefix(string(s.LastErrorClass)+", ", ", ")
		notes = append(notes, inked{class + "since " + clock(s.FailingSince) + ": " + s.LastError, inkPlain})
	}
	if s.Position != nil && s.Position.Unknown != "" {
		notes = append(notes, inked{s.Position.Unknown, inkPlain})
	}
	for _, remedy := range s.Remedies() {
		notes = append(notes, inked{"do: " + remedy, inkStrong})
	}
	return notes
}

// age is how long ago t was, by the relay's clock.
func (s *screen) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return spanText(max(0, s.status.Relay.Now.Sub(t).Truncate(time.Second).Seconds()))
}

// ago is an age in words, empty for never.
func (s *screen) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return s.age(t) + " ago"
}

// pastKept is how many samples a sparkline shows.
const pastKept = 12

// past has the earlier answers, for rates and sparklines. The zero value has none.
type past struct {
	rates  map[string][]float64 // of "environment PROJECT/ENVIRONMENT" and "sink NAME", the oldest first
	totals map[string]int64     // of the sinks, in the newest answer
	at     time.Time            // of the newest answer
}

// note takes an answer.
func (p *past) note(s *relayStatus) {
	if p.rates == nil {
		p.rates, p.totals = map[string][]float64{}, map[string]int64{}
	}
	seconds := s.Relay.Now.Sub(p.at).Seconds()
	first := p.at.IsZero() || seconds <= 0
	p.at = s.Relay.Now
	for i := range s.Environments {
		e := &s.Environments[i]
		p.add("environment "+e.Project+"/"+e.Environment, e.Observed.EventsPerSecond)
	}
	for i := range s.Sinks {
		if s.Sinks[i].Delivery == nil {
			continue
		}
		key, total := "sink "+s.Sinks[i].Name, s.Sinks[i].Events
		if !first && total >= p.totals[key] { // it is less after a restart
			p.add(key, float64(total-p.totals[key])/seconds)
		}
		p.totals[key] = total
	}
}

func (p *past) add(key string, rate float64) {
	rates := append(p.rates[key], rate)
	p.rates[key] = rates[max(0, len(rates)-pastKept):]
}

// rate is the newest one, as text.
func (p *past) rate(key string) string {
	rates := p.rates[key]
	if len(rates) == 0 {
		return ""
	}
	return rateText(rates[len(rates)-1])
}

// spark draws the rates from zero to the highest of them.
func (p *past) spark(key string) string {
	bars, most := []rune("▁▂▃▄▅▆▇█"), 0.0
	for _, r := range p.rates[key] {
		most = max(most, r)
	}
	var line []rune
	for _, r := range p.rates[key] {
		bar := 0
		if most > 0 && r > 0 {
			bar = 1 + int(r/most*float64(len(bars)-2)+0.5)
		}
		line = append(line, bars[min(max(bar, 0), len(bars)-1)])
	}
	return string(line)
}
