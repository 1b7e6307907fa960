package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Tap asks for the live events, from now on.
type Tap struct {
	// Sink, where it is set, shows the events as this sink gets them: chosen by its match,
	// redacted, and in its format. Without it they are as they were received.
	Sink string `json:"sink,omitempty"`
	// Match is a CEL expression over the shown event. An event it fails for is not shown.
	Match string `json:"match,omitempty"`
}

// Tapped is a live event.
type Tapped struct {
	// CloudEvent is the event in CloudEvents' JSON form, without its labels.
	CloudEvent json.RawMessage `json:"event"`
	Labels     []relay.Label   `json:"labels,omitempty"`
}

// Event gives the event back.
func (t *Tapped) Event() (relay.Event, error) {
	e, err := cloudevents.ParseJSON(t.CloudEvent)
	e.Labels = t.Labels
	return e, err
}

// TapCounts are a tap's since its beginning.
type TapCounts struct {
	Shown    int64 `json:"shown"`
	LeftOut  int64 `json:"left_out"`  // by the sink's match
	Withheld int64 `json:"withheld"`  // the sink's dead letters get them
	Other    int64 `json:"unmatched"` // by Match
	Failed   int64 `json:"failed"`    // Match failed for them
	// Dropped events passed unseen, as the client was slower. SkippedRecords hold further
	// ones, one or many each.
	Dropped        int64 `json:"dropped"`
	SkippedRecords int64 `json:"skipped_records"`
}

const (
	// mostTaps bounds the taps at a time.
	mostTaps = 4
	// tapEvents and tapBytes bound the events waiting for the client of a tap.
	tapEvents = 1024
	tapBytes  = 8 << 20
	// tapBehind bounds the records a tap reads in one go. Behind more, it skips some: a tap
	// shows the events passing now.
	tapBehind = 512
	// tapPause is the time between two looks for new records.
	tapPause = 100 * time.Millisecond
)

// errTaps: there are enough taps.
var errTaps = refuse(http.StatusTooManyRequests, "%d taps run already: end one first", mostTaps)

func (s *Server) tap(ctx context.Context, req Tap, out *stream) error {
	t, err := s.openTap(ctx, &req)
	if err != nil {
		return err
	}
	defer func() { <-s.taps }()
	return t.run(ctx, out)
}

// openTap takes a place among the taps; its caller gives it back.
func (s *Server) openTap(ctx context.Context, req *Tap) (*tap, error) {
	t := &tap{journal: s.opts.Journal, waiting: make(chan waitingEvent, tapEvents)}
	if req.Sink != "" {
		sink, err := s.sink(req.Sink)
		if err == nil {
			t.route, err = s.opts.Route(sink)
		}
		if err != nil {
			return nil, err
		}
	}
	if req.Match != "" {
		match, err := routing.New(&config.Match{CEL: req.Match, OnError: "withhold"}, nil, routing.Options{Logger: s.opts.Logger})
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "%v", err)
		}
		t.match = match
	}
	_, last, err := s.opts.Journal.Ends(ctx)
	if err != nil {
		return nil, err
	}
	t.next = last + 1
	select {
	case s.taps <- struct{}{}:
		return t, nil
	default:
		return nil, errTaps
	}
}

// send writes events and counts until ctx ends, or reading does.
func (t *tap) send(ctx context.Context, out *stream, ended <-chan error) error {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	err := out.tell(frame{Taps: t.snapshot()}) // the tap has begun
	for err == nil {
		select {
		case e := <-t.waiting:
			t.bytes.Add(-e.size)
			err = out.send(e.Tapped)
		case <-tick.C:
			err = out.tell(frame{Taps: t.snapshot()})
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("the client has gone: %w", err)
}
