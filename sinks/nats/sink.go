// Package nats delivers events to NATS, through JetStream (acknowledged) or
// core NATS (at most once).
//
// A message is a CloudEvent in binary content mode, by the NATS protocol
// binding 1.0.3: the attributes in headers "ce-NAME", percent-encoded, the
// event's body untouched as payload. See [Sink] for what is promised.
//
// The sink publishes with its own acknowledgement inbox: nats.go's retries can send
// after Deliver has returned.
package nats

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/template"
)

// Sink delivers to NATS. It implements relay.Sink.
//
// With JetStream each event is published with an acknowledgement awaited from
// the stream that takes its subject, many in flight at once. The header
// Nats-Msg-Id is the event's source and id, each percent-encoded, and a hash of the
// body as it is delivered, with spaces between them: a redelivery inside the stream's
// duplicate window is stored once, and an id that comes again with another body is
// stored as the other event that it is. An answer that says "duplicate" counts as
// delivered, and is counted by itself.
//
// Order is kept as long as all is acknowledged. When an event fails to be
// stored for now, no further one is published; those in flight behind it may
// have been stored by then, and so stand before it once it is tried again. It
// is the failed ones alone that are named in a relay.PartialError.
//
// In core mode nil says that the server has read the events, not that anyone
// received them: NATS does not acknowledge, and has none of it afterwards.
//
// A connection is made when it is first needed, and anew after it broke or a
// delivery was given up: what was not sent by then is not sent later.
type Sink struct {
	dialer     dialer
	core       bool
	stream     string // to create where it is missing; "" for none
	subject    *template.Template
	subjects   string // the subject with wildcards in place of the template's names
	logger     *slog.Logger
	closing    context.Context // ends at Close
	startClose context.CancelFunc
	builder    *builder    // under mu
	mu         sync.Mutex  // held by Deliver all along
	conn       *connection // under mu; nil when there is none
	announced  bool        // under mu; the connection was logged, and not failed to be made since
}

// Options are what New needs beside the configuration; all may be left out.
type Options struct {
	// Name is what the server shows the connection as. Default auditrelay.
	Name string
	// Logger is told of connections made. Failures are Deliver's to tell.
	Logger *slog.Logger
	// Duplicates counts the events that the stream has stored before and answers
	// as duplicates. Default: nothing is counted.
	Duplicates prometheus.Counter
}

var errClosed = errors.New("the sink is closed")

// New makes a sink of a section that is complete (see config.Sink.Complete), without
// connecting: a server that is down is an error of Deliver. Errors name the setting
// and no secret.
func New(cfg config.NATS, opts Options) (*Sink, error) {
	if opts.Name == "" {
		opts.Name = "auditrelay"
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := newDialer(cfg, opts)
	if err != nil {
		return nil, err
	}
	subject := template.Parse(cfg.Subject)
	s := &Sink{
		dialer: d, core: cfg.Mode == "core", stream: cfg.CreateStream,
		subject: subject, subjects: anySubject(cfg.Subject), logger: opts.Logger, builder: newBuilder(subject),
	}
	s.closing, s.startClose = context.WithCancel(context.Background())
	return s, nil
}

// Deliver implements relay.Sink. What is larger than the server or the stream
// takes is refused for good, by name; anything else is worth another try.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return errClosed // AfterFunc tells it too, but in its own time
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(errClosed) })()
	if err := s.connect(ctx); err != nil {
		return err
	}
	err := s.conn.deliver(ctx, events, s.builder)
	if s.conn.broken() {
		s.drop()
	}
	return err
}

// connect makes sure of a connection, or says why there is none.
func (s *Sink) connect(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.conn != nil && s.conn.nc.IsConnected() {
		return nil
	}
	s.drop()
	conn, err := s.open(ctx)
	if err != nil {
		s.announced = false
		return err
	}
	if !s.announced {
		s.logger.Info("nats connected", "server", conn.nc.ConnectedAddr())
	}
	s.conn, s.announced = conn, true
	return nil
}

func (s *Sink) open(ctx context.Context) (*connection, error) {
	conn, err := s.dialer.dial(ctx, s.core)
	if err != nil {
		return nil, err
	}
	if s.stream == "" || s.core {
		return conn, nil
	}
	if err := createStream(ctx, conn.nc, s.stream, s.subjects); err != nil {
		conn.close()
		return nil, err
	}
	return conn, nil
}

func (s *Sink) drop() {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
}

// Close implements relay.Sink. A Deliver under way ends with an error first.
func (s *Sink) Close() error {
	s.startClose()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return nil
}
