// Package nats delivers events to NATS, through JetStream (acknowledged) or core NATS (at most
// once).
//
// A message is a CloudEvent in binary content mode, by the NATS protocol binding 1.0.3: the
// attributes are in headers "ce-NAME", percent-encoded, and the payload is the event's body,
// untouched. See [Sink] for the promises.
//
// The sink publishes with an acknowledgement inbox of its own, because nats.go's retries can
// send after Deliver has returned.
package nats

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Sink delivers to NATS. It implements relay.Sink.
//
// With JetStream the stream of its subject must acknowledge each event; many are in flight at
// once. The header Nats-Msg-Id consists of the event's source and id, each percent-encoded, and
// a hash of the body as it is delivered, separated by spaces. So an event that is delivered
// again within the stream's duplicate window is stored once, and an event with a known id and
// another body is stored as another event. The answer "duplicate" counts as delivered, and is
// counted separately.
//
// Order is kept as long as everything is acknowledged. When an event cannot be stored for now,
// no further one is published. Those that were in flight after it may have been stored by then,
// and so precede it once it is tried again. A relay.PartialError names only those that failed.
//
// In core mode, nil means that the server has read the events. Perhaps nobody received them, as
// core NATS neither acknowledges nor keeps messages.
//
// A connection is made when it is first needed, and a new one after it broke or a delivery was
// given up, so that unsent events are not sent later.
type Sink struct {
	dialer     dialer
	core       bool
	stream     string // to create if it is missing; "" for none
	subject    subject
	subjects   string // the subject with wildcards in place of the template's names
	logger     *slog.Logger
	closing    context.Context // ends at Close
	startClose context.CancelFunc
	builder    *builder    // guarded by mu
	mu         sync.Mutex  // held by Deliver until it returns
	conn       *connection // guarded by mu; nil when there is none
	announced  bool        // guarded by mu; the connection was logged, and making one has not failed since
}

// Options are what a sink is given besides its section; all may be left out.
type Options struct {
	// Name is the name of the connection at the server. The default is auditrelay.
	Name string
	// Logger is told of connections that are made. Failures are returned by Deliver instead.
	Logger *slog.Logger
	// Duplicates counts the stream's answers "duplicate". By default nothing is counted.
	Duplicates prometheus.Counter
}

var errClosed = errors.New("the sink is closed")

// New makes a sink from a complete section (see config.Sink.Complete), without connecting; an
// outage is an error of Deliver. Errors name the setting, and no secret.
func New(cfg config.NATS, opts Options) (*Sink, error) {
	opts.Name, opts.Logger = cmp.Or(opts.Name, "auditrelay"), cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	d, err := newDialer(cfg, opts)
	if err != nil {
		return nil, err
	}
	subject := parseSubject(cfg.Subject)
	s := &Sink{
		dialer: d, core: cfg.Mode == "core", stream: cfg.CreateStream,
		subject: subject, subjects: subject.pattern(), logger: opts.Logger, builder: newBuilder(subject),
	}
	s.closing, s.startClose = context.WithCancel(context.Background())
	return s, nil
}

// Deliver implements relay.Sink. An event that is too large for the server or the stream is
// refused for good, by name; any other error is retryable.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return errClosed // AfterFunc ends the context too, but some time later
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(errClosed) })()
	if err := s.connect(ctx); err != nil {
		return classed(err)
	}
	err := s.conn.deliver(ctx, events, s.builder)
	if s.conn.broken() {
		s.drop()
	}
	return classed(err)
}

// classed marks the client's own errors with their class.
func classed(err error) error {
	is := func(e error) bool { return errors.Is(err, e) }
	switch {
	case slices.ContainsFunc([]error{
		natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired, natsgo.ErrPermissionViolation,
	}, is):
		return relay.WithClass(err, relay.ClassAuthentication)
	case slices.ContainsFunc([]error{natsgo.ErrNoServers, natsgo.ErrConnectionClosed, natsgo.ErrStaleConnection}, is):
		return relay.WithClass(err, relay.ClassConnection)
	case is(natsgo.ErrTimeout):
		return relay.WithClass(err, relay.ClassTimeout)
	}
	return err
}

// connect makes sure that there is a connection, or says why there is none.
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
	if err := createStream(ctx, conn.nc, s.stream, &s.subject); err != nil {
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

// Close implements relay.Sink. A Deliver that is under way ends with an error first.
func (s *Sink) Close() error {
	s.startClose()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return nil
}
