package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// Pump carries events from a source to one destination: at least once, for as long as it takes,
// and in order unless Parallel is set. It contains the only retry loop of the relay; sinks only
// classify errors.
//
// Nothing is dropped. An event is acknowledged to the source after its sink has acknowledged it
// or after it has been stored in the dead letters, and after the same is true of all events
// before it.
//
// After a permanent error that does not name the events it concerns, the pump bisects the
// delivery. The refused events of one delivery go to the dead letters together, since each call
// costs a sync, and before anything that follows them is acknowledged.
//
// With ReadAhead it bisects a delivery, too, after an error marked with [Suspect] that lasts. It
// sets aside an event that fails by itself, delivers others, and tries it again between them.
//
// With Parallel, an instance that hangs or an event that cannot be delivered stops no other
// instance. Up to four batches per instance may be read before the source is told of a
// position, and would come again after a crash; only those under way, and one more, are in
// memory. At the end, the whole of a batch under way gets its first attempt, because if the
// pump stopped in its middle, its beginning would be delivered twice.
type Pump struct {
	// Name is the name of the sink.
	Name   string
	Source Source
	Sink   Sink
	// Parallel holds further instances of Sink. Each instance makes one delivery at a time and
	// retries it on its own, so deliveries overtake each other. The caller closes them, as it
	// closes Sink.
	Parallel    []Sink
	DeadLetters DeadLetters
	// ReadAhead lets the pump read on before it has acknowledged a batch, as it does with Parallel.
	// Without it a [Suspect] error is like any other, since nothing can show that the sink works.
	ReadAhead bool
	// Permit, where set, is asked before each attempt to deliver, and before events go to the dead
	// letters: it waits until this pump may, or returns why it may not. Of several processes that
	// might deliver to one destination, only one is permitted to.
	Permit func(context.Context) error
	// Limit bounds one delivery. Zero values mean 5000 events and 4 MiB of bodies; a single
	// event that is larger is delivered alone.
	Limit BatchLimit
	// Timeout bounds one attempt; zero means 30 s.
	Timeout time.Duration
	// Grace is how long deliveries under way may take after Run's context has ended; zero means
	// 5 s.
	Grace   time.Duration
	Logger  *slog.Logger
	Metrics *Metrics
}

// BatchLimit bounds a delivery.
type BatchLimit struct {
	Events, Bytes int
	// Wait is how long the source waits for further events before it returns a batch that is
	// not full. With zero it waits some milliseconds, as the source sees fit.
	Wait time.Duration
}

// With several sinks, batchesPerSink bounds the batches per sink that are read but not
// acknowledged. A crash may deliver that many again. Memory holds only the batches under
// delivery, one per sink, and one more.
const batchesPerSink = 4

// Run carries events until ctx ends or the source fails, and returns the reason. From then on
// it reads nothing more and retries nothing. A batch that was started gets its first attempt as
// a whole, within Grace, because otherwise its delivered part would be delivered twice.
// Unacknowledged batches are read again at the next start.
func (p *Pump) Run(ctx context.Context) error {
	p.Metrics.Begin(p.Name)
	trouble := &outage{sink: p.Name, log: p.Logger, metrics: p.Metrics}
	p.Metrics.failing(p.Name, trouble, false)
	defer p.Metrics.failing(p.Name, trouble, false) // another process may go on
	p.setDefaults()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lasting, end := outlive(ctx, p.Grace)
	defer end()
	sinks := append([]Sink{p.Sink}, p.Parallel...)
	pending := newWindow(p.Source, stop, 1) // one at a time, which keeps the order
	if len(sinks) > 1 {
		pending = newWindow(p.Source, stop, batchesPerSink*len(sinks))
	}
	work := make(chan delivery)
	var workers sync.WaitGroup
	for _, sink := range sinks {
		w := &worker{Pump: p, sink: sink, outage: trouble, lasting: lasting, pending: pending}
		workers.Go(func() { w.run(ctx, work) })
	}
	err := p.feed(ctx, lasting, pending, work)
	stop()
	close(work)
	workers.Wait()
	if pending.err != nil {
		return fmt.Errorf("record the position of sink %s: %w", p.Name, pending.err)
	}
	return err
}

func (p *Pump) setDefaults() {
	if p.Permit == nil {
		p.Permit = func(ctx context.Context) error { return ctx.Err() }
	}
	p.Timeout, p.Grace = cmp.Or(p.Timeout, 30*time.Second), cmp.Or(p.Grace, 5*time.Second)
	p.Limit.Events, p.Limit.Bytes = cmp.Or(p.Limit.Events, 5000), cmp.Or(p.Limit.Bytes, 4<<20)
}

// delivery is a run of a batch's events that is handed to a sink in one call.
type delivery struct {
	events []Event
	of     *unsettled
}

// outlive returns a context that ends grace after ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { _ = retry.Sleep(lasting, grace); end() })
	return lasting, end
}

// feed reads batches while there is room, and cuts them into deliveries. It hands out all of a
// batch that it has started, unless lasting ends.
func (p *Pump) feed(ctx, lasting context.Context, pending *window, work chan<- delivery) error {
	for {
		if err := pending.wait(ctx); err != nil {
			return fmt.Errorf("deliver to sink %s: %w", p.Name, err)
		}
		batch, err := p.Source.Next(ctx)
		if err != nil {
			return fmt.Errorf("read events for sink %s: %w", p.Name, err)
		}
		of := pending.add(batch.Position)
		patience := ctx
		for rest := batch.Events; len(rest) > 0; {
			n := p.cut(rest)
			of.left.Add(1)
			select {
			case work <- delivery{rest[:n:n], of}:
			case <-patience.Done():
				return fmt.Errorf("deliver to sink %s: %w", p.Name, ctx.Err())
			}
			patience = lasting
			rest = rest[n:]
		}
		pending.settle(of) // the feeder's own share
	}
}

// cut returns the number of events for the next delivery.
func (p *Pump) cut(events []Event) int {
	n, size := 0, 0
	for n < len(events) && n < p.Limit.Events {
		size += len(events[n].Body)
		if size > p.Limit.Bytes && n > 0 {
			break
		}
		n++
	}
	return n
}
