package relay

import "context"

// Sink is one destination.
//
// A Pump calls Deliver from one goroutine at a time; if it makes several deliveries at once,
// each goes to an instance of its own. Close may be called during a Deliver, which must then
// return soon with an error.
type Sink interface {
	// Deliver hands events, oldest first, to the destination, and returns once the destination
	// has acknowledged them.
	//
	// nil acknowledges every event: each survives whatever the destination promises to survive.
	// An error only classifies, and a sink never retries on its own: see [Permanent],
	// [RetryAfter], [Suspect] and [PartialError]. An error of no class is tried again with backoff. An
	// event whose fate is unknown counts as not acknowledged.
	//
	// When ctx ends, Deliver returns soon, and sends nothing afterwards. It must not change the
	// events. Its errors contain no secret.
	Deliver(ctx context.Context, events []Event) error

	// Close releases the connections. It is called once.
	Close() error
}

// Checker is a Sink that can tell in advance whether a delivery would work.
type Checker interface {
	// Check resolves, connects and authenticates as a delivery would, asks for the
	// destination's limits, and writes nothing. It calls report with each finding as soon as it
	// has it: what was examined, and what was found, neither with a secret. It returns the
	// first error that a delivery would meet, together with the remedy.
	Check(ctx context.Context, report func(what, found string)) error
}

// Source yields events in order to one Pump. A Pump with one sink acknowledges each batch
// before it asks for the next, unless its ReadAhead is set. Then, and with several sinks, it
// calls Ack while a Next is under way, and for
// batches older than the newest. Neither method is called from more than one goroutine at a
// time.
type Source interface {
	// Next waits for events and returns a batch of at least one, which follows the previous
	// batch, and whose position is greater. It returns an error when ctx ends, or when the source
	// is closed.
	Next(ctx context.Context) (Batch, error)

	// Ack records that the batch at p and all batches before it are done. p is the position of
	// a batch from Next, and greater at each call. It may be recorded lazily: after a crash the
	// position may be older than the last Ack, but never newer.
	Ack(ctx context.Context, p Position) error
}

// Batch is a run of consecutive events.
type Batch struct {
	Events []Event
	// Position is the position after the last event of the batch.
	Position Position
}

// Position is a place in a Source; a later place is greater.
type Position uint64

// DeadLetters keeps the events that a sink refused for good. A Pump with several sinks calls
// Reject from as many goroutines.
type DeadLetters interface {
	// Reject returns once the rejections are durable. After an error the caller tries again,
	// since nothing may go on before they are stored.
	Reject(ctx context.Context, sink string, rejections []Rejection) error
}

// Rejection is an event that one sink refused, and the reason.
type Rejection struct {
	Event    Event
	Reason   string // names the cause, and contains no secret
	Attempts int    // how often it was tried
}
