package web

import (
	"errors"
	"net/url"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/relay"
)

// livePage has the newest events.
type livePage struct {
	Form   url.Values
	Sample sample
	// Stream is where the events to come are read; empty: they are not followed. Other is the page
	// that follows if this one does not, and the other way round.
	Address, Stream, Other string
	Veiled                 bool
	Sinks                  []console.Sink
}

// sample is what is shown of the live events, the newest first.
type sample struct {
	Events   []liveEvent
	Counts   console.TapCounts
	Followed bool
	Error    string
}

type liveEvent struct {
	relay.Event
	// Number is the event's in its sample, by which a browser knows it again.
	Number int
	Text   string
}

const (
	livePath   = "/live"
	streamPath = livePath + "/events"
	// liveShown is how many events a page has.
	liveShown = 50
	// longestEvent bounds what is shown of a body, in bytes.
	longestEvent = 4 << 10
)

// add takes in an event, in place of the oldest one if there are too many.
func (s *sample) add(t *console.Tapped) error {
	e, err := t.Event()
	if err != nil {
		return err
	}
	shown := liveEvent{e, 1, marked(string(e.Body), longestEvent)}
	shown.Body = nil // it may be large
	if len(s.Events) > 0 {
		shown.Number = s.Events[0].Number + 1
	}
	s.Events = append([]liveEvent{shown}, s.Events[:min(len(s.Events), liveShown-1)]...)
	return nil
}

// liveOf shows the newest events, and says where to read those to come.
func liveOf(a *asked) (any, error) {
	p := livePage{Form: a.request.Form, Veiled: a.role < access.Auditor, Address: a.request.URL.RequestURI()}
	fields := with(with(url.Values{}, "sink", a.value("sink")), "match", a.value("match"))
	if a.value("hold") == "" {
		p.Stream, p.Other = address(streamPath, fields), address(livePath, with(fields, "hold", "yes"))
	} else {
		p.Other = address(livePath, fields)
	}
	var err error
	if p.Sinks, err = a.client.Sinks(a.ctx); err != nil {
		return nil, err
	}
	req := tapOf(a)
	req.Newest = liveShown
	err = a.client.Tap(a.ctx, req, p.Sample.add, func(c *console.TapCounts) { p.Sample.Counts = *c })
	if errors.Is(err, console.ErrRequest) {
		p.Sample.Error, p.Stream, err = err.Error(), "", nil
	}
	return p, err
}

func tapOf(a *asked) console.Tap {
	return console.Tap{Sink: a.value("sink"), Match: a.value("match"), Veiled: a.role < access.Auditor}
}

// sessionsOf are the people who are logged in.
func sessionsOf(a *asked) (any, error) { return a.client.Sessions(a.ctx) }

func logOut(a *asked) (prepared, error) {
	id := a.value("session")
	return prepared{
		plan: func() (plan, error) {
			list, err := a.client.Sessions(a.ctx)
			p := plan{Head: []string{"Person", "Role", "Last used"}, Says: []string{"The person would be logged out now, and may log in again."}}
			for _, s := range list {
				if s.ID == id {
					p.Rows, p.Button = append(p.Rows, []string{s.Person.String(), s.Role.String(), stampOf(s.Seen)}), "Log out"
				}
			}
			return p, err
		},
		do: func() (done, error) {
			was, err := a.client.RevokeSession(a.ctx, console.RevokeSession{ID: id})
			if err != nil {
				return done{}, err
			}
			return done{was[0].Person.String() + " is logged out.", "/sessions"}, nil
		},
	}, nil
}
