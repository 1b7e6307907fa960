package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

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
)

// follow streams the live events as they pass, as server-sent events, each of them the whole of what
// a page shows. So a browser that reads slowly misses nothing but what has passed meanwhile, and one
// that does not read ends its stream.
func (c *Console) follow(w http.ResponseWriter, a *asked) {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.streams, func() { cancel(errStopping) })()
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
	case errors.Is(cause, errLoggedOut):
		live.Error = cause.Error()
		_ = c.sendSample(out, live, "event: over\ndata:\n\n") // the browser has gone
	case errors.As(err, &refused):
		live.Error = refused.Reason
		_ = c.sendSample(out, live, "") // likewise
	}
}

func (c *Console) sendSample(out *eventStream, live sample, further string) error {
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

// eventStream is an answer with server-sent events. Its time limit is for each piece.
type eventStream struct {
	w      http.ResponseWriter
	answer *http.ResponseController
}

func newEventStream(w http.ResponseWriter) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes each piece on at once
	return &eventStream{w, http.NewResponseController(w)}
}

func (s *eventStream) write(text string) error {
	_ = s.answer.SetWriteDeadline(time.Now().Add(streamPatience)) // without, the server's limit counts
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.answer.Flush()
}
