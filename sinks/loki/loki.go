// Package loki delivers events to a Loki, by its push API.
//
// A body becomes a line, byte for byte. The labels are few (see config.Loki); the other
// CloudEvents attributes are structured metadata under their own names, and so are the
// sender's labels, under "label_" and their names. specversion and time are left out: the
// one never varies, and the other is the entry's timestamp. Metadata over Loki's limits is
// cut at the sender's labels, the last first, and metadata_dropped says how many.
//
// # Acknowledgements
//
// A push has one stream, never more. To a push of several, Loki (3.7.8,
// ingester/instance.go) gives the answer of the last stream alone: if an earlier one
// refused entries, it answers 204 nonetheless, and they are gone. Only 204 and 200 count.
// Other 2xx do not: a blocked tenant is answered with 260.
//
// A 400 may be partial, and names ten entries at the most. But it tells how many, and Loki
// refuses by age: with the entries sent in order of time, the refused ones are the first,
// or the last (see refusal). If the text leaves a doubt, smaller pieces are pushed until
// none is left. Loki has taken some of these already. It recognises the same timestamp,
// line and metadata as long as they are in the open block of their stream; later they stand
// twice, with the same id.
//
// # Late entries
//
// Loki refuses an entry more than half of max_chunk_age behind the newest of its stream.
// Such an entry goes to the same stream with the label late="true"; if too late there as
// well, to the stream of its hour, such as late="2026-11-03T04Z". {late!=""} finds both.
// An event dated more than ten minutes after its receipt goes to a stream with late="ahead":
// it would make all others of its stream late.
// Known late entries go there at once: when Loki splits a busy stream into shards, the
// answer may again be the last shard's alone. The first push of a stream has only its
// oldest entry, to learn Loki's position.
//
// # Refusals and retries
//
// Dead letters get the incurable: a too long line, label or attribute, a time refused even
// as late (reject_old_samples, creation_grace_period), and single entries with a 400 of
// another kind. Everything else is tried again, also errors for an operator to mend (401,
// 403, 404, a redirect, a label demanded by Loki): they must not cost a single event.
//
// # Parts of loki-client-go
//
// Its address type (urlutil), its label sets (labelutil), and the type of its client's
// configuration with TLS and authentication, which is prometheus/common's, with the HTTP
// client made from it. The push types are those of github.com/grafana/loki/pkg/push, Loki's
// own module, which loki-client-go uses as well. Its package loki is not used: its client
// retries on its own terms, and drops, and links testing and promtail's metrics. Nor are
// its backoff and batches: relay.Pump has the one retry loop. Certificates are read by
// config.TLSClient, which keeps the pair before while the files are being replaced.
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

// Options are the surroundings of a sink.
type Options struct {
	// Logger is for rare events, such as the first late entries of a stream. Default:
	// nothing is logged.
	Logger *slog.Logger
}

// Sink is a relay.Sink over one Loki.
type Sink struct {
	client *http.Client
	url    *url.URL
	log    *slog.Logger
	hide   *strings.Replacer // takes the credentials out of Loki's answers

	limits
	tenant *template.Template // nil: none is sent
	labels []label            // sorted by name
	own    attributes         // sent as metadata

	closing context.Context // ends when the sink is closed
	close   context.CancelCauseFunc

	// limit bounds a push before compression, in bytes; learned from refusals. Used by the
	// goroutines of one delivery.
	limit atomic.Int64

	// The rest belongs to Deliver's goroutine, and during a delivery each stream to the
	// goroutine pushing it.

	streams map[string]*stream
	work    []*stream       // of the delivery
	failed  []relay.Failure // of the delivery
	key     []byte          // scratch
	workers [inFlight]worker
}

var errClosed = errors.New("sink is closed")

// New makes a sink of a complete section (see config.Sink.Complete). It connects to
// nothing: the first delivery meets an outage. Errors name the field of cfg.
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
	s.close(errClosed)
	s.client.CloseIdleConnections()
	return nil
}
