package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// events returns events with these ids.
func events(ids ...string) (all []relay.Event) {
	for _, id := range ids {
		all = append(all, relay.Event{ID: id, Source: relay.SourceOf("shop", "live"), Type: "event_log.login", Body: []byte("{}")})
	}
	return all
}

// printer prints events. It refuses an event with the id "odd", and is busy when the first
// delivery comes.
type printer struct{ calls int }

func (p *printer) Deliver(ctx context.Context, events []relay.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.calls++; p.calls == 1 {
		return relay.RetryAfter(errors.New("the printer is busy"), 10*time.Millisecond)
	}
	var failures []relay.Failure
	for i := range events {
		if events[i].ID == "odd" {
			failures = append(failures, relay.Failure{Index: i, Err: relay.Permanent(errors.New("it is odd"))})
			continue
		}
		fmt.Println("delivered", events[i].ID)
	}
	return relay.Outcome(len(events), failures)
}

func (p *printer) Close() error { return nil }

// list is a source of batches in memory. Its positions count the batches.
type list struct {
	batches [][]relay.Event
	next    int
}

func (l *list) Next(context.Context) (relay.Batch, error) {
	if l.next == len(l.batches) {
		return relay.Batch{}, io.EOF // this ends the pump
	}
	l.next++
	return relay.Batch{Events: l.batches[l.next-1], Position: relay.Position(l.next)}, nil
}

func (l *list) Ack(_ context.Context, p relay.Position) error {
	fmt.Println("acknowledged up to", p)
	return nil
}

// basket prints the refused events.
type basket struct{}

func (basket) Reject(_ context.Context, sink string, rejections []relay.Rejection) error {
	for _, r := range rejections {
		fmt.Printf("%s refused %s: %s\n", sink, r.Event.ID, r.Reason)
	}
	return nil
}

// A pump delivers in order, retries, and puts refused events into the dead letters before it
// acknowledges the batch.
func ExamplePump() {
	pump := relay.Pump{
		Name: "printer", Source: &list{batches: [][]relay.Event{events("a", "odd", "b"), events("c")}},
		Sink: &printer{}, DeadLetters: basket{}, Logger: slog.New(slog.DiscardHandler),
	}
	err := pump.Run(context.Background())
	fmt.Println(err)
	// Output:
	// delivered a
	// delivered b
	// printer refused odd: it is odd
	// acknowledged up to 1
	// delivered c
	// acknowledged up to 2
	// read events for sink printer: EOF
}

// A sink makes one attempt. The class of its error decides what happens to the events.
func ExampleSink() {
	var sink relay.Sink = &printer{}
	fmt.Println(sink.Deliver(context.Background(), events("a")))
	fmt.Println(sink.Deliver(context.Background(), events("a")))
	fmt.Println(sink.Deliver(context.Background(), events("b", "odd")))
	// Output:
	// the printer is busy
	// delivered a
	// <nil>
	// delivered b
	// 1 event was not acknowledged: it is odd
}

// A source returns batches in order, each with the position after its last event.
func ExampleSource() {
	var source relay.Source = &list{batches: [][]relay.Event{events("a", "b"), events("c")}}
	for {
		batch, err := source.Next(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(batch.Events), "events up to", batch.Position)
		_ = source.Ack(context.Background(), batch.Position)
	}
	// Output:
	// 2 events up to 1
	// acknowledged up to 1
	// 1 events up to 2
	// acknowledged up to 2
	// EOF
}

// A permanent error stays one when it is wrapped.
func ExamplePermanent() {
	err := fmt.Errorf("deliver: %w", relay.Permanent(errors.New("the event is too large")))
	fmt.Println(err, relay.IsPermanent(err))
	// Output: deliver: the event is too large true
}

// The pump waits at least as long as the destination asks for.
func ExampleRetryAfter() {
	err := relay.RetryAfter(errors.New("too many requests"), 30*time.Second)
	wait, ok := relay.RetryDelay(err)
	fmt.Println(err, wait, ok)
	// Output: too many requests 30s true
}

// The first event is delivered, the second goes to the dead letters, and only the
// third is tried again.
func ExamplePartialError() {
	var err error = &relay.PartialError{Failures: []relay.Failure{
		{Index: 1, Err: relay.Permanent(errors.New("it is too large"))},
		{Index: 2, Err: errors.New("the leader is gone")},
	}}
	var partial *relay.PartialError
	if errors.As(err, &partial) {
		for _, f := range partial.Failures {
			fmt.Println(f.Index, f.Err, relay.IsPermanent(f.Err))
		}
	}
	// Output:
	// 1 it is too large true
	// 2 the leader is gone false
}

// Outcome makes the error of a delivery from its failures, in any order.
func ExampleOutcome() {
	down := errors.New("the partition has no leader")
	fmt.Println(relay.Outcome(2, nil))
	fmt.Println(relay.Outcome(2, []relay.Failure{{Index: 1, Err: down}, {Index: 0, Err: down}}))
	fmt.Println(relay.Outcome(2, []relay.Failure{{Index: 1, Err: down}}))
	// Output:
	// <nil>
	// the partition has no leader
	// 1 event was not acknowledged: the partition has no leader
}
