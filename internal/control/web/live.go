package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

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

func (p livePage) wrong() bool { return p.Sample.wrong() }

// sample is what is shown of the live events, the newest first.
type sample struct {
	mistake
	Events   []liveEvent
	Counts   console.TapCounts
	Followed bool
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

const (
	// longestStream ends a stream, which the browser then begins again: by rules and for a session
	// as they are then.
	longestStream = 5 * time.Minute
	// streamPatience is how long a browser may take for a piece of a stream.
	streamPatience = 10 * time.Second
)

var (
	errStopping  = errors.New("the relay is shutting down")
	errLoggedOut = errors.New("you are logged out, or have another role now: load the page again")
	errElsewhere = errors.New("you follow the live events in other pages, which are newer: to go on here, close one of them, and load this page again")
)

// mostStreams bounds the streams of one visitor. A browser keeps at most six connections to a server
// that speaks HTTP/1, and all other pages would wait for ever if streams took all of them.
const mostStreams = 4

// streams are the open ones.
type streams struct {
	mu  sync.Mutex
	all []*openStream // the oldest first; guarded by mu
}

type openStream struct {
	of  access.Visitor
	end context.CancelCauseFunc
}

// begin adds a stream, in place of the visitor's oldest one if there are too many. ended removes it.
func (s *streams) begin(of access.Visitor, end context.CancelCauseFunc) (ended func()) {
	it, n := &openStream{of, end}, 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, it)
	for _, o := range slices.Backward(s.all) {
		if o.of != of {
			continue
		}
		if n++; n > mostStreams {
			o.end(errElsewhere)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = slices.DeleteFunc(s.all, func(o *openStream) bool { return o == it })
	}
}

// follow streams the live events as they pass, as server-sent events, each of them the whole of what
// a page shows. So a browser that reads slowly misses nothing but what has passed meanwhile, and one
// that does not read ends its stream.
func (c *Console) follow(w http.ResponseWriter, a *asked) error {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.stopping, func() { cancel(errStopping) })()
	visitor, _ := c.opts.Access.Still(a.request) // each piece asks again
	defer c.streams.begin(visitor, cancel)()
	ctx, end := context.WithTimeout(ctx, longestStream)
	defer end()
	out, live, before := newEventStream(w), sample{Followed: true}, console.TapCounts{Shown: -1}
	send := func(now console.TapCounts) error {
		if visitor, in := c.opts.Access.Still(a.request); !in || visitor.Role != a.role {
			return errLoggedOut
		}
		if now == before {
			return out.write(":\n\n") // a sign of life
		}
		before, live.Counts = now, now
		return c.sendSample(out, live, "")
	}
	req := tapOf(a)
	req.Newest, req.Sample = liveShown, liveShown
	err := a.client.Tap(ctx, req, live.add, func(now *console.TapCounts) {
		if err := send(*now); err != nil {
			cancel(err)
		}
	})
	var refused *console.Refused
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLoggedOut), errors.Is(cause, errElsewhere):
		live.Error = cause.Error()
		_ = c.sendSample(out, live, "event: over\ndata:\n\n") // the browser has gone
	case errors.As(err, &refused):
		live.Error = refused.Reason
		_ = c.sendSample(out, live, "") // likewise
	}
	return nil
}

func (c *Console) sendSample(out eventStream, live sample, further string) error {
	var html bytes.Buffer
	if err := c.templates["live.html"].ExecuteTemplate(&html, "sample", live); err != nil {
		c.opts.Logger.Error("the live events cannot be shown", "error", err)
		return err
	}
	return out.write("retry: 2000\n" + dataLines(html.String()) + "\n" + further)
}

// dataLines gives a text the form of a server-sent event's data. A carriage return would end a line.
func dataLines(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimSpace(text))
	return "data: " + strings.ReplaceAll(text, "\n", "\ndata: ") + "\n"
}

// eventStream is an answer with server-sent events.
type eventStream struct{ http.ResponseWriter }

func newEventStream(w http.ResponseWriter) eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes each piece on at once
	return eventStream{w}
}

func (s eventStream) write(text string) error {
	if _, err := writeWithin(s.ResponseWriter, streamPatience, []byte(text)); err != nil {
		return err
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// writeWithin writes a piece of an answer whose time limit is for each piece, not for the whole.
func writeWithin(w http.ResponseWriter, patience time.Duration, piece []byte) (int, error) {
	limit(w, patience)
	return w.Write(piece)
}

// limit sets the time limit of an answer.
func limit(w http.ResponseWriter, patience time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience)) // without, the server's limit counts
}
