// Package loki delivers events to a Loki, by its push API.
//
// A body becomes a line, byte for byte. The labels are few (see config.Loki); the other
// CloudEvents attributes are sent as structured metadata under their own names, and so are
// the sender's labels, with "label_" before their names. specversion and time are left out,
// since the first never varies and the second is the entry's timestamp. Metadata that
// exceeds Loki's limits is cut at the sender's labels, beginning with the last, and
// metadata_dropped says how many are missing.
//
// # Acknowledgements
//
// A push has one stream, never more. If a push has several, Loki (3.7.8,
// ingester/instance.go) gives the answer of the last stream alone: if an earlier one
// refused entries, it answers 204 nonetheless, and they are gone. Only 204 and 200 count as
// acknowledgements. Other 2xx do not: a blocked tenant is answered with 260. Neither does a page
// in HTML or a body that tells of an error, since those are another server's.
//
// A 400 may be partial, and names at most ten entries. But it says how many were refused,
// and Loki refuses by age: when the entries are sent in order of time, the refused ones are
// the first or the last (see refusal). If the text leaves a doubt, smaller pieces are pushed
// until none is left. Loki has taken some of these entries already. It recognises the same
// timestamp, line and metadata as long as they are in the open block of their stream; after
// that they are stored twice, with the same id.
//
// # Late entries
//
// Loki refuses an entry that is older than the newest of its stream by more than half of
// max_chunk_age. Such an entry goes to the same stream with the label late="true"; if it is
// too late there as well, it goes to the stream of its hour, such as late="2026-11-03T04Z".
// {late!=""} finds both. An event that is dated more than ten minutes after its receipt goes
// to a stream with late="ahead", because it would make all others of its stream late.
// Entries that are known to be late go there at once: when Loki splits a busy stream into
// shards, the answer may again be only that of the last shard. The first push of a stream
// has only its oldest entry, in order to learn how new Loki's entries are.
//
// # Refusals and retries
//
// The dead letters get what cannot be cured: a line, label or attribute that is too long, a
// time that is refused even as late (reject_old_samples, creation_grace_period), and single
// entries that are answered with a 400 of another kind. Everything else is tried again, and
// so are errors that an operator has to correct (401, 403, 404, a redirect, a label that
// Loki demands), since they must not cost a single event.
//
// # Parts of loki-client-go
//
// The sink uses its address type (urlutil) and its label sets (labelutil). The push types are
// those of github.com/grafana/loki/pkg/push, Loki's own module, which loki-client-go uses as
// well. Its package loki is not used: its client retries on its own terms, drops entries, and
// links testing and promtail's metrics. Its backoff and batches are not used either, since
// relay.Pump has the only retry loop.
package loki

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/httpsink"
	"github.com/auditrelay/auditrelay/relay"
)

// Options are what a sink is given besides its section.
type Options struct {
	// Logger is for rare events, such as the first late entries of a stream. By default nothing
	// is logged.
	Logger *slog.Logger
}

// Sink is a relay.Sink over one Loki.
type Sink struct {
	client     *httpsink.Client
	url        *url.URL
	credential string // of the header Authorization; empty for none
	log        *slog.Logger

	cfg    config.Loki
	tenant *relay.Template // nil if none is sent
	labels []label         // sorted by name
	own    attributes      // those that are sent as metadata

	// limit bounds a push before compression, in bytes. It is learned from refusals. The
	// goroutines of one delivery use it.
	limit atomic.Int64

	// The goroutine of Deliver owns the remaining fields, and during a delivery each stream
	// belongs to the goroutine that pushes it.

	streams map[string]*stream
	work    []*stream       // those of the delivery
	failed  []relay.Failure // those of the delivery
	key     []byte          // scratch
	workers [inFlight]worker
}

// New makes a sink from a complete section (see config.Sink.Complete). It connects to nothing;
// if Loki is down, the first delivery fails. Errors name the field of cfg.
func New(cfg config.Loki, opts Options) (*Sink, error) {
	s := &Sink{log: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)), streams: map[string]*stream{}}
	s.configure(cfg)
	if err := s.connect(cfg); err != nil {
		return nil, err
	}
	s.limit.Store(firstLimit)
	return s, nil
}

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, cancel := s.client.Until(ctx)
	defer cancel()
	defer s.reset()
	s.assign(events)
	s.pushAll(ctx, events)
	return relay.Outcome(len(events), s.failed)
}

// reset drops the last delivery, and keeps the memory.
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
	s.client.Close()
	return nil
}
