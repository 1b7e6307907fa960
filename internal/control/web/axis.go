package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// axisWidth is the width of the picture of an axis, in its own units.
const axisWidth = 1000

// laneHeight is that of a lane.
const laneHeight = 20

// axis is a history on one axis of time. A table of the page, named NAME-table, has what it shows.
type axis struct {
	Name        string
	From, Until time.Time
	Lanes       []lane
}

// lane is a row of segments.
type lane struct {
	Name     string
	Segments []segment
}

// segment is a stretch of time in one state, or a moment at which something happened. X, Y, Width and
// Height are those of its picture, which fills its lane where Height is zero at first.
type segment struct {
	From, Until time.Time // a moment has no Until
	State       string
	Colour      string // good, warn, bad, unknown or mark
	X, Width    float64
	Y, Height   float64
}

// add adds the part of a segment that is on the axis.
func (l *lane) add(x axis, s segment) {
	end := cmp.Or(s.Until, s.From.Add(1))
	if s.From.Before(x.From) {
		s.From = x.From
	}
	if !s.From.Before(end) {
		return
	}
	scale := axisWidth / x.Until.Sub(x.From).Seconds()
	s.X = s.From.Sub(x.From).Seconds() * scale
	s.Width = max(3, end.Sub(s.From).Seconds()*scale) // a narrower one could not be seen
	if s.Height == 0 {
		s.Height = laneHeight
	}
	s.Y = laneHeight - s.Height
	l.Segments = append(l.Segments, s)
}

// bars adds a bar for each of some numbers that are spread evenly over the axis. The tallest is as high
// as the lane.
func (l *lane) bars(x axis, colour string, numbers []int64) {
	most := slices.Max(numbers)
	if most > 1 {
		l.Name = fmt.Sprintf("%s, up to %d", l.Name, most)
	}
	step := x.Until.Sub(x.From) / time.Duration(len(numbers))
	for i, n := range numbers {
		if from := x.From.Add(time.Duration(i) * step); n > 0 {
			l.add(x, segment{From: from, Until: from.Add(step), State: fmt.Sprint(n), Colour: colour, Height: max(1, laneHeight*float64(n)/float64(most))})
		}
	}
}

// states makes a lane of the states in the entries about a setting. A state lasts until the next one. The
// first one is that of the last entry before the axis; without it nothing is known, and the lane begins
// with a hole.
func (p *historyPage) states(a *asked, setting, name string, stateIn func(*timeline.Entry) (state, colour string)) (lane, error) {
	about := p.Entries
	if !p.Cut() {
		before, err := entries(a, timeline.Filter{Project: p.Project, Environment: p.Environment, Setting: setting, Until: p.Axis.From, Limit: 1})
		if err != nil {
			return lane{}, err
		}
		about = append(before, about...)
	}
	about = slices.DeleteFunc(slices.Clone(about), func(e timeline.Entry) bool { return e.Setting != setting })
	l := lane{Name: name}
	for i := 0; i < len(about); {
		state, colour := stateIn(&about[i])
		from, until := about[i].Time, p.Axis.Until
		for i++; i < len(about); i++ { // those that say the same
			if next, _ := stateIn(&about[i]); next != state {
				until = about[i].Time
				break
			}
		}
		l.add(p.Axis, segment{From: from, Until: until, State: state, Colour: colour})
	}
	return l, nil
}

// declared makes the lane of what the API said.
func (p *historyPage) declared(a *asked) (lane, error) {
	return p.states(a, streaming.Subject, "Declared by the API", func(e *timeline.Entry) (string, string) {
		var config struct {
			Status management.StreamingStatus `json:"streaming_status"`
		}
		_ = json.Unmarshal(e.After, &config) // without a status, there is none
		colour := map[management.StreamingStatus]string{"": "unknown", management.StatusActive: "good", management.StatusPending: "warn"}[config.Status]
		return cmp.Or(marked(string(config.Status), 40), "none"), cmp.Or(colour, "bad")
	})
}

// observed makes the lane of what was judged by the arrivals. A state that has lasted since the relay
// began to watch has no entry.
func (p *historyPage) observed(a *asked) (lane, error) {
	l, err := p.states(a, health.Subject, "Observed by the relay", func(e *timeline.Entry) (string, string) {
		var judged struct{ To health.State }
		_ = json.Unmarshal(e.Detail, &judged) // an entry that says nothing leaves the state unknown
		state := cmp.Or(judged.To, health.Unknown)
		return marked(string(state), 40), colourOf(state)
	})
	if len(l.Segments) == 0 && !p.Since.IsZero() {
		l.add(p.Axis, segment{From: p.Since, Until: p.Axis.Until, State: string(p.State), Colour: colourOf(p.State)})
	}
	return l, err
}

func colourOf(s health.State) string {
	switch s.Severity() {
	case meaning.High, meaning.Critical:
		return "bad"
	case meaning.Medium, meaning.Low:
		return "warn"
	}
	if s == health.Flowing {
		return "good"
	}
	return "unknown"
}
