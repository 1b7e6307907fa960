// Package loki delivers events to a Loki, by its push API.
//
// A body becomes a line, byte for byte. The labels are few (see config.Loki);
// the other CloudEvents attributes are structured metadata under their own
// names, and what the sender sent beside the body is too, under "label_" and
// its name. specversion and time are left out: the one never varies, and the
// other is the entry's timestamp. Metadata over Loki's limits is cut at the
// sender's labels, the last first, and metadata_dropped says how many.
//
// # What an acknowledgement means
//
// A push has one stream, never more. Loki (3.7.8, ingester/instance.go) answers
// a push of several with what became of the last one alone: where an earlier one
// refused entries, the answer is 204 nonetheless, and they are gone. Only 204
// and 200 count. Other 2xx do not: a blocked tenant is answered with 260.
//
// A 400 may be partial, and names ten entries at the most. But it tells how
// many, and Loki refuses by age: with the entries sent in order of time, the
// refused ones are the first, or the last (see refusal). Where the text leaves a
// doubt, smaller pieces are pushed until none is left. That pushes again what
// Loki has already taken. It recognises the same timestamp, line and metadata as
// long as they are in the open block of their stream; later they stand twice,
// with the same id.
//
// # What comes late
//
// Loki refuses an entry that is more than half of max_chunk_age behind the
// newest of its stream. Such an entry goes to the same stream with the label
// late="true"; where that stream is ahead of it as well, to one for its hour,
// such as late="2026-11-03T04Z". {late!=""} finds both. What is known to be late
// goes there at once: when Loki splits a busy stream into shards, an answer may
// again be that of the last one alone. The first push of a stream has only its
// oldest entry, which tells where Loki stands.
//
// # What is refused and what is tried again
//
// Dead letters get what no retry cures: a line, label or attribute that is too
// long, a time that Loki does not take even as late (reject_old_samples,
// creation_grace_period), and single entries that it answers with a 400 of
// another kind. Everything else is tried again, also what an operator has to
// mend first (401, 403, 404, an address that redirects, a label that Loki
// demands): it must not cost a single event.
//
// # What is taken from loki-client-go
//
// The types of its configuration, the HTTP client made from them, and the push
// types. Not its package loki: that client retries on its own terms, and drops, and
// links testing and promtail's metrics.
package loki

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/template"
)

// Options are what a sink takes from its surroundings.
type Options struct {
	// Logger gets what happens seldom, such as the first late events of a
	// stream. Default: nothing is logged.
	Logger *slog.Logger
}

// Sink is a relay.Sink over one Loki.
type Sink struct {
	client *http.Client
	url    *url.URL
	log    *slog.Logger
	hide   *strings.Replacer // takes the credentials out of what Loki says

	limits
	tenant *template.Template // nil: none is sent
	labels []label            // sorted by name
	own    attributes         // that go along as metadata

	closing context.Context // ends when the sink is closed
	close   context.CancelCauseFunc

	// limit is how large a push may be before compression, in bytes; learned
	// from what is refused. Used by the goroutines of one delivery.
	limit atomic.Int64

	// What follows belongs to the goroutine that is in Deliver, and during a
	// delivery each stream to the goroutine that pushes it.

	streams map[string]*stream
	work    []*stream       // of the delivery
	failed  []relay.Failure // of the delivery
	key     []byte          // scratch
	workers [inFlight]worker
}

var errClosed = errors.New("sink is closed")

// New makes a sink of a section that is complete (see config.Sink.Complete). It
// connects to nothing: a Loki that is down shows at the first delivery. Errors name
// the field of cfg.
func New(cfg config.Loki, opts Options) (*Sink, error) {
	s := &Sink{log: opts.Logger, streams: map[string]*stream{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.configure(cfg)
	if err := s.connect(cfg); err != nil {
		return nil, err
	}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.limit.Store(firstLimit)
	return s, nil
}

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.closing, func() { stop(errClosed) })()
	if s.closing.Err() != nil {
		return errClosed
	}
	defer s.reset()
	s.assign(events)
	s.pushAll(ctx, events)
	return relay.Outcome(len(events), s.failed)
}

// reset drops what the last delivery left, and keeps the memory.
func (s *Sink) reset() {
	for _, st := range s.work {
		st.run = st.run[:0]
	}
	clear(s.failed)
	s.work, s.failed = s.work[:0], s.failed[:0]
	for i := range s.workers {
		s.workers[i].reset()
	}
	if len(s.streams) > maxStreams {
		clear(s.streams)
	}
}

// Close implements relay.Sink. A delivery under way fails at once.
func (s *Sink) Close() error {
	s.close(errClosed)
	s.client.CloseIdleConnections()
	return nil
}
