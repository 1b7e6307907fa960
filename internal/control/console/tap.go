package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
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
	// Veiled shows the events as viewers of the console in the browser may see them. Match sees
	// them in the same way, so that it tells nothing of what is left out.
	Veiled bool `json:"veiled,omitempty"`
	// Newest, if set, asks for so many of the newest events that the journal has, at most, and not
	// for those to come.
	Newest int `json:"newest,omitempty"`
	// Sample, if set, asks for a sample of the events to come, too: so many of them twice a second, at
	// most.
	Sample int `json:"sample,omitempty"`
}

// sampled reports whether it asks for a sample, as pages do, and not for all events.
func (t *Tap) sampled() bool { return t.Newest > 0 || t.Sample > 0 }

// longestSampled bounds the expression of a sample, in bytes, since any viewer may ask for one: a
// regular expression of a few bytes may take many kilobytes of memory.
const longestSampled = 4 << 10

// Check refuses an expression that is too long for a sample.
func (t *Tap) Check() error {
	if t.sampled() && len(t.Match) > longestSampled {
		return fmt.Errorf("the expression has %d bytes, and here it may have %d; 'auditrelay tap --match' takes a longer one", len(t.Match), longestSampled)
	}
	return nil
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
	// Dropped events passed unseen, as the client was slower or they are not of the sample.
	// SkippedRecords hold further ones, one or many each.
	Dropped        int64 `json:"dropped"`
	SkippedRecords int64 `json:"skipped_records"`
}

const (
	// mostTaps bounds the taps at a time.
	mostTaps = 4
	// tapRecords, tapEvents and tapBytes bound what a tap shows at each look, and tapLooked the events
	// that it looks at for that. It passes over older ones: a tap shows the events passing now.
	tapRecords = 512
	tapEvents  = 1024
	tapBytes   = 8 << 20
	tapLooked  = 10_000
	// tapEvery is the time between two looks.
	tapEvery = 100 * time.Millisecond
)

// The errors say that there are enough taps.
var (
	errTaps    = refuse(http.StatusTooManyRequests, "%d taps run already: end one first", mostTaps)
	errSamples = refuse(http.StatusTooManyRequests, "the live events are followed at %d places already: close one of those pages first", mostSamples)
)

func (s *Server) tap(ctx context.Context, req Tap, out *stream) error {
	places, full := s.taps, errTaps
	if req.sampled() {
		places, full = s.samples, errSamples
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return full
	}
	t, err := s.openTap(ctx, &req)
	if err != nil {
		return err
	}
	if err := t.newest(ctx, min(req.Newest, tapEvents), out); err != nil {
		return err
	}
	switch {
	case req.Sample > 0:
		return t.follow(ctx, sampleEvery, func() look { return sampled(len(places), min(req.Sample, tapEvents)) }, out)
	case req.Newest > 0:
		return nil
	}
	return t.follow(ctx, tapEvery, func() look { return look{records: tapRecords, events: tapLooked, shown: tapEvents, bytes: tapBytes} }, out)
}

// openTap makes a tap that begins now.
func (s *Server) openTap(ctx context.Context, req *Tap) (*tap, error) {
	t := &tap{logs: s.opts.Journal.Logs()}
	if req.sampled() {
		t.samples = s.samples
	}
	if req.Sink != "" {
		sink, err := s.sink(req.Sink)
		if err == nil {
			t.route, err = s.opts.Route(sink)
		}
		if err != nil {
			return nil, err
		}
	}
	if req.Veiled {
		t.veil = s.veil
	}
	var err error
	if t.match, err = s.matching(req.Match, "withhold"); err != nil {
		return nil, err
	}
	for _, log := range s.opts.Journal.Logs() {
		_, last, err := log.Ends(ctx)
		if err != nil {
			return nil, err
		}
		t.next = append(t.next, last+1)
	}
	return t, nil
}

// matching is the choice by an expression; nil without one.
func (s *Server) matching(expression, onError string) (*routing.Route, error) {
	if expression == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	route, err := routing.New(&config.Match{CEL: expression, OnError: onError}, nil, routing.Options{Logger: s.opts.Logger})
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return route, nil
}

// tap looks at the journal's live end now and then. It keeps no position, and waits for nobody: what
// has passed while its client did not read is counted, and not shown. So it holds up neither
// delivery nor ingest.
type tap struct {
	logs  []*journal.Journal
	route *routing.Route // nil: events as they were received
	veil  veil           // nil: they are shown whole
	match *routing.Route // nil: all of them
	next  []uint64       // the first record of each log that was not looked at yet

	samples chan struct{} // has a token for each sample; nil: this is none
	took    time.Duration // of the last look
	counts  TapCounts
}

// shownEvent is an event for the client.
type shownEvent struct {
	Tapped
	size     int64
	received time.Time
}

// shown makes an event for the client, or gives the count that it belongs to.
func (t *tap) shown(e *relay.Event) (shownEvent, *int64) {
	shown, count := t.choose(e)
	if count != nil {
		return shownEvent{}, count
	}
	w := shownEvent{Tapped: Tapped{CloudEvent: cloudevents.AppendJSON(nil, &shown), Labels: slices.Clone(shown.Labels)}, received: e.Received}
	w.size = int64(len(w.CloudEvent))
	for _, l := range shown.Labels {
		w.size += int64(len(l.Name) + len(l.Value))
	}
	return w, nil
}

// choose gives the event as it is shown, or the count that it belongs to.
func (t *tap) choose(e *relay.Event) (relay.Event, *int64) {
	shown := *e
	if t.route != nil {
		switch trial := t.route.Try(shown); {
		case trial.Withheld:
			return shown, &t.counts.Withheld
		case !trial.Delivered:
			return shown, &t.counts.LeftOut
		default:
			shown = trial.Event
		}
	}
	if t.veil != nil {
		shown = t.veil(shown)
	}
	if t.match != nil {
		switch trial := t.match.Try(shown); {
		case trial.Withheld:
			return shown, &t.counts.Failed
		case !trial.Delivered:
			return shown, &t.counts.Other
		}
	}
	return shown, nil
}

func (t *tap) tell(out *stream) error { return out.tell(frame{Taps: &t.counts}) }

// veil gives an event as viewers may see it.
type veil func(relay.Event) relay.Event

// newVeil makes a veil of what is to be redacted. An event that cannot be redacted for certain, and
// every event if nothing says what to redact, has neither body nor labels.
func newVeil(redact *config.Redact, log *slog.Logger) (veil, error) {
	bare := func(e relay.Event) relay.Event {
		e.Body, e.Labels = nil, nil
		return e
	}
	if redact == nil {
		return bare, nil
	}
	route, err := routing.New(nil, redact, routing.Options{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("console.redact: %w", err)
	}
	return func(e relay.Event) relay.Event {
		if trial := route.Try(e); trial.Delivered && !trial.Withheld {
			return trial.Event
		}
		return bare(e)
	}, nil
}
