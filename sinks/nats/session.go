package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/relay"
)

// session is one connection. It is used by one goroutine at a time, except for
// what the client calls back.
type session struct {
	wire *wire
	nc   *natsgo.Conn
	core bool
	// replies is what the subjects of acknowledgements begin with; the number
	// of the message follows.
	replies string
	next    uint64 // the number of the next message
	lost    chan struct{}
	flight  atomic.Pointer[flight] // the delivery under way, for the callbacks
	refusal atomic.Pointer[error]  // what the server complained of first
	spoilt  bool                   // a delivery left messages unsettled

	duplicates prometheus.Counter // nil counts nothing
}

func newSession(duplicates prometheus.Counter) *session {
	return &session{lost: make(chan struct{}), duplicates: duplicates}
}

// listen subscribes to the acknowledgements.
func (s *session) listen(core bool) error {
	s.core = core
	if core {
		return nil
	}
	s.replies = s.nc.NewInbox() + "."
	sub, err := s.nc.Subscribe(s.replies+"*", s.acknowledged)
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	// No message waits for long in our handler, so none need be dropped.
	return sub.SetPendingLimits(-1, -1)
}

// acknowledged is called for one answer after the other.
func (s *session) acknowledged(m *natsgo.Msg) {
	number, err := strconv.ParseUint(m.Subject[len(s.replies):], 10, 64)
	f := s.flight.Load()
	if err != nil || f == nil || number < f.first {
		return
	}
	err = ackError(m)
	if err == nil && s.duplicates != nil && isDuplicate(m) {
		s.duplicates.Inc()
	}
	f.settle(number-f.first, err)
}

// complain is called with what the server says beside the acknowledgements,
// such as that a subject may not be published to: no acknowledgement follows.
func (s *session) complain(err error) {
	s.refusal.CompareAndSwap(nil, &err)
	if f := s.flight.Load(); f != nil {
		f.stop(err)
	}
}

func (s *session) deliver(ctx context.Context, events []relay.Event, b *builder) error {
	// A write to a peer that does not read blocks inside the client, with its
	// locks held; cutting the wire is the only way out.
	defer context.AfterFunc(ctx, s.wire.cut)()
	if s.core {
		return s.deliverCore(ctx, events, b)
	}
	return s.deliverAcknowledged(ctx, events, b)
}

// deliverCore publishes, and asks the server whether it has read it all.
func (s *session) deliverCore(ctx context.Context, events []relay.Event, b *builder) error {
	var failures []relay.Failure
	for i := range events {
		msg, err := b.message(&events[i], "")
		if err == nil {
			err = sizeError(s.nc.PublishMsg(msg), msg, s.nc)
		}
		if relay.IsPermanent(err) {
			failures = append(failures, relay.Failure{Index: i, Err: err})
		} else if err != nil {
			return s.spoil(ctx, err)
		}
	}
	if err := s.flush(ctx); err != nil {
		return s.spoil(ctx, err)
	}
	if len(failures) > 0 {
		return &relay.PartialError{Failures: failures}
	}
	return nil
}

// flush returns when the server has answered a ping behind all that was sent.
func (s *session) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // the client insists on a deadline
	defer cancel()
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	// The client calls complain only some time after; this it sets at once.
	return s.nc.LastError()
}

// spoil marks the session as not to be used again: what it may have buffered
// must not go out after the delivery has returned. The best reason wins.
func (s *session) spoil(ctx context.Context, err error) error {
	s.spoilt = true
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if refusal := s.refusal.Load(); refusal != nil {
		return *refusal
	}
	return err
}

// lostError says why the connection is no more.
func (s *session) lostError() error {
	if err := s.nc.LastError(); err != nil {
		return fmt.Errorf("connection lost: %w", err)
	}
	return errors.New("connection lost")
}

// broken reports whether the session is of no further use.
func (s *session) broken() bool { return s.spoilt || !s.nc.IsConnected() }

// close ends the session. Of a broken one the wire is cut first, as the client
// would flush what it has buffered; any other has nothing buffered.
func (s *session) close() {
	if s.nc == nil || s.broken() {
		s.wire.cut()
	}
	if s.nc != nil {
		s.nc.Close()
	}
}
