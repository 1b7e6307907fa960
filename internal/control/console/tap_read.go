package console

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// tap reads the journal's live end. It keeps no position, and waits for nobody: an event
// without room among those for the client is dropped, and counted. So it holds up neither
// delivery nor ingest.
type tap struct {
	journal *journal.Journal
	route   *routing.Route // nil: events as they were received
	match   *routing.Route // nil: all of them
	next    uint64         // the first record not read yet; the reading goroutine's own

	waiting chan waitingEvent
	bytes   atomic.Int64 // of the waiting events

	mu     sync.Mutex
	counts TapCounts // guarded by mu
}

// waitingEvent is an event for the client.
type waitingEvent struct {
	Tapped
	size int64
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
		_, last, err := t.journal.Ends(ctx)
		if err != nil {
			return err
		}
		if last+1 < t.next { // the stream went back
			t.next = last + 1
		}
		if behind := last + 1 - t.next; behind > tapBehind {
			t.count(func(c *TapCounts) { c.SkippedRecords += int64(behind - tapBehind) })
			t.next = last + 1 - tapBehind
		}
		if t.next > last {
			if err := retry.Sleep(ctx, tapPause); err != nil {
				return err
			}
			continue
		}
		if err := t.journal.Records(ctx, t.next, last+1, func(_ uint64, data []byte) bool { t.record(data); return ctx.Err() == nil }); err != nil {
			return err
		}
		t.next = last + 1
	}
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
	shown, outcome := t.choose(e)
	if outcome != nil {
		t.count(outcome)
		return
	}
	w := waitingEvent{Tapped: Tapped{CloudEvent: cloudevents.AppendJSON(nil, &shown), Labels: shown.Labels}}
	w.size = int64(len(w.CloudEvent))
	for _, l := range shown.Labels {
		w.size += int64(len(l.Name) + len(l.Value))
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
