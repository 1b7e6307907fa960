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

// connection is one to a server. One goroutine at a time uses it, beside the client's
// callbacks.
type connection struct {
	wire *wire
	nc   *natsgo.Conn
	core bool
	// replies begins the subjects of acknowledgements; the number of the message follows.
	replies  string
	next     uint64 // the number of the next message
	lost     chan struct{}
	delivery atomic.Pointer[delivery] // the delivery under way, for the callbacks
	refusal  atomic.Pointer[error]    // the server's first complaint
	spoilt   bool                     // a delivery left messages unsettled

	duplicates prometheus.Counter // nil counts nothing
}

func newConnection(duplicates prometheus.Counter) *connection {
	return &connection{lost: make(chan struct{}), duplicates: duplicates}
}

// listen subscribes to the acknowledgements.
func (c *connection) listen(core bool) error {
	c.core = core
	if core {
		return nil
	}
	c.replies = c.nc.NewInbox() + "."
	sub, err := c.nc.Subscribe(c.replies+"*", c.acknowledged)
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	// No message waits for long in our handler, so none need be dropped.
	return sub.SetPendingLimits(-1, -1)
}

// acknowledged is called for one answer after the other.
func (c *connection) acknowledged(m *natsgo.Msg) {
	number, err := strconv.ParseUint(m.Subject[len(c.replies):], 10, 64)
	d := c.delivery.Load()
	if err != nil || d == nil || number < d.first {
		return
	}
	err = ackError(m)
	if err == nil && c.duplicates != nil && isDuplicate(m) {
		c.duplicates.Inc()
	}
	d.settle(number-d.first, err)
}

// complain is called with the server's errors beside the acknowledgements, such as a
// forbidden subject: no acknowledgement follows.
func (c *connection) complain(err error) {
	c.refusal.CompareAndSwap(nil, &err)
	if d := c.delivery.Load(); d != nil {
		d.stop(err)
	}
}

func (c *connection) deliver(ctx context.Context, events []relay.Event, b *builder) error {
	// If the peer does not read, a write blocks inside the client, with its locks held;
	// cutting the wire is the only way out.
	defer context.AfterFunc(ctx, c.wire.cut)()
	if c.core {
		return c.deliverCore(ctx, events, b)
	}
	return c.deliverAcknowledged(ctx, events, b)
}

// deliverCore publishes, and asks the server whether it has read it all.
func (c *connection) deliverCore(ctx context.Context, events []relay.Event, b *builder) error {
	var failures []relay.Failure
	for i := range events {
		msg, err := b.message(&events[i], "")
		if err == nil {
			err = sizeError(c.nc.PublishMsg(msg), msg, c.nc)
		}
		if relay.IsPermanent(err) {
			failures = append(failures, relay.Failure{Index: i, Err: err})
		} else if err != nil {
			return c.spoil(ctx, err)
		}
	}
	if err := c.flush(ctx); err != nil {
		return c.spoil(ctx, err)
	}
	return relay.Outcome(len(events), failures)
}

// flush returns after the server answered a ping behind all messages.
func (c *connection) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // the client insists on a deadline
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	// The client calls complain only some time after; this it sets at once.
	return c.nc.LastError()
}

// spoil gives up the connection: buffered messages must not go out after the delivery
// returned. The best reason wins.
func (c *connection) spoil(ctx context.Context, err error) error {
	c.spoilt = true
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if refusal := c.refusal.Load(); refusal != nil {
		return *refusal
	}
	return err
}

// lostError says why the connection is no more.
func (c *connection) lostError() error {
	if err := c.nc.LastError(); err != nil {
		return fmt.Errorf("connection lost: %w", err)
	}
	return errors.New("connection lost")
}

// broken reports whether the connection is of no further use.
func (c *connection) broken() bool { return c.spoilt || !c.nc.IsConnected() }

// close ends the connection. It cuts the wire of a broken one first: the client would
// flush its buffer. Any other has nothing buffered.
func (c *connection) close() {
	if c.nc == nil || c.broken() {
		c.wire.cut()
	}
	if c.nc != nil {
		c.nc.Close()
	}
}
