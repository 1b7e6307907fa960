package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
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
	// tapEvents and tapBytes bound the events waiting for the client of a tap.
	tapEvents = 1024
	tapBytes  = 8 << 20
	// tapBehind bounds the records a tap reads in one go. Behind more, it skips some: a tap
	// shows the events passing now.
	tapBehind = 512
	// tapPause is the time between two looks for new records.
	tapPause = 100 * time.Millisecond
)

// The errors say that there are enough taps.
var (
	errTaps    = refuse(http.StatusTooManyRequests, "%d taps run already: end one first", mostTaps)
	errSamples = refuse(http.StatusTooManyRequests, "the live events are followed at %d places already: close one of those pages first", mostSamples)
)

func (s *Server) tap(ctx context.Context, req Tap, out *stream) error {
	t, err := s.openTap(ctx, &req)
	if err != nil {
		return err
	}
	places, full := s.taps, errTaps
	if req.Newest > 0 || req.Sample > 0 {
		places, full = s.samples, errSamples
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return full
	}
	if req.Newest > 0 || req.Sample > 0 {
		err = t.newest(ctx, min(req.Newest, tapEvents), out)
		if err == nil && req.Sample > 0 {
			err = t.sample(ctx, min(req.Sample, tapEvents), func() int { return len(places) }, out)
		}
		return err
	}
	return t.run(ctx, out)
}

// openTap makes a tap that begins now.
func (s *Server) openTap(ctx context.Context, req *Tap) (*tap, error) {
	t := &tap{logs: s.opts.Journal.Logs(), waiting: make(chan waitingEvent, tapEvents)}
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
	if req.Match != "" {
		match, err := routing.New(&config.Match{CEL: req.Match, OnError: "withhold"}, nil, routing.Options{Logger: s.opts.Logger})
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "%v", err)
		}
		t.match = match
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

// tap reads the journal's live end. It keeps no position, and waits for nobody: an event
// without room among those for the client is dropped, and counted. So it holds up neither
// delivery nor ingest.
type tap struct {
	logs  []*journal.Journal
	route *routing.Route // nil: events as they were received
	veil  veil           // nil: they are shown whole
	match *routing.Route // nil: all of them
	next  []uint64       // the first record of each log not read yet; the reading goroutine's own

	waiting chan waitingEvent
	bytes   atomic.Int64 // of the waiting events

	mu     sync.Mutex
	counts TapCounts // guarded by mu
}

// waitingEvent is an event for the client.
type waitingEvent struct {
	Tapped
	size     int64
	received time.Time
}

// run reads and sends until ctx ends, or one of the two fails.
func (t *tap) run(ctx context.Context, out *stream) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- t.read(ctx) }()
	err := t.send(ctx, out, ended)
	cancel()
	return err
}

func (t *tap) read(ctx context.Context) error {
	for {
		grown := false
		for i := range t.logs {
			more, err := t.readLog(ctx, i)
			if err != nil {
				return err
			}
			grown = grown || more
		}
		if !grown {
			if err := retry.Sleep(ctx, tapPause); err != nil {
				return err
			}
		}
	}
}

// readLog reads what is new in a log, and reports whether there was anything.
func (t *tap) readLog(ctx context.Context, i int) (grown bool, err error) {
	_, last, err := t.logs[i].Ends(ctx)
	if err != nil {
		return false, err
	}
	next := min(t.next[i], last+1) // the log may have gone back
	if behind := last + 1 - next; behind > tapBehind {
		t.count(func(c *TapCounts) { c.SkippedRecords += int64(behind - tapBehind) })
		next = last + 1 - tapBehind
	}
	t.next[i] = last + 1
	if next > last {
		return false, nil
	}
	return true, t.logs[i].Records(ctx, next, last+1, func(_ uint64, data []byte) bool { t.record(data); return ctx.Err() == nil })
}

// record passes on the events of a record. Live delivery tells of a damaged one.
func (t *tap) record(data []byte) {
	r, err := record.Open(data)
	for err == nil && !r.Done() {
		var events []relay.Event
		events, _, err = r.Next(nil, record.PieceBytes)
		for i := range events {
			t.event(&events[i])
		}
	}
}

// event puts an event among those for the client, if it is to be shown and there is room.
func (t *tap) event(e *relay.Event) {
	w, outcome := t.shown(e)
	if outcome != nil {
		t.count(outcome)
		return
	}
	if t.bytes.Add(w.size) > tapBytes {
		t.bytes.Add(-w.size)
		t.count(func(c *TapCounts) { c.Dropped++ })
		return
	}
	select {
	case t.waiting <- w:
		t.count(func(c *TapCounts) { c.Shown++ })
	default:
		t.bytes.Add(-w.size)
		t.count(func(c *TapCounts) { c.Dropped++ })
	}
}

// shown makes an event for the client, or says how it counts.
func (t *tap) shown(e *relay.Event) (waitingEvent, func(*TapCounts)) {
	shown, outcome := t.choose(e)
	if outcome != nil {
		return waitingEvent{}, outcome
	}
	w := waitingEvent{Tapped: Tapped{CloudEvent: cloudevents.AppendJSON(nil, &shown), Labels: slices.Clone(shown.Labels)}, received: e.Received}
	w.size = int64(len(w.CloudEvent))
	for _, l := range shown.Labels {
		w.size += int64(len(l.Name) + len(l.Value))
	}
	return w, nil
}

// choose gives the event as it is shown, or says how it counts.
func (t *tap) choose(e *relay.Event) (relay.Event, func(*TapCounts)) {
	shown := *e
	if t.route != nil {
		switch trial := t.route.Try(shown); {
		case trial.Withheld:
			return shown, func(c *TapCounts) { c.Withheld++ }
		case !trial.Delivered:
			return shown, func(c *TapCounts) { c.LeftOut++ }
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
			return shown, func(c *TapCounts) { c.Failed++ }
		case !trial.Delivered:
			return shown, func(c *TapCounts) { c.Other++ }
		}
	}
	return shown, nil
}

func (t *tap) count(change func(*TapCounts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.counts)
}

func (t *tap) snapshot() *TapCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	return &c
}
