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

// connection is a connection to a server. Apart from the client's callbacks, one goroutine at a
// time uses it.
type connection struct {
	wire *wire
	nc   *natsgo.Conn
	core bool
	// replies is how the subjects of acknowledgements begin; the number of the message follows.
	replies  string
	next     uint64 // the number of the next message
	lost     chan struct{}
	delivery atomic.Pointer[delivery] // the delivery under way, for the callbacks
	refusal  atomic.Pointer[error]    // the server's first complaint
	spoilt   bool                     // a delivery left messages without an answer

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
	// No message waits long for our handler, so none needs to be dropped.
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

// complain is called with errors of the server that are no acknowledgements, such as that a
// subject is forbidden. No acknowledgement follows such an error.
func (c *connection) complain(err error) {
	c.refusal.CompareAndSwap(nil, &err)
	if d := c.delivery.Load(); d != nil {
		d.stop(err)
	}
}

func (c *connection) deliver(ctx context.Context, events []relay.Event, b *builder) error {
	// If the peer does not read, a write blocks inside the client while it holds its locks.
	// Cutting the wire is the only way out.
	defer context.AfterFunc(ctx, c.wire.cut)()
	if c.core {
		return c.deliverCore(ctx, events, b)
	}
	return c.deliverAcknowledged(ctx, events, b)
}

// deliverCore publishes, and asks the server whether it has read everything.
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

// flush returns after the server has answered a ping that was sent after all messages.
func (c *connection) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // the client insists on a deadline
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	// The client calls complain some time later, but it sets this at once.
	return c.nc.LastError()
}

// spoil gives up the connection, because buffered messages must not go out after the delivery
// has returned. It returns the best reason there is.
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

// lostError says why the connection was lost.
func (c *connection) lostError() error {
	if err := c.nc.LastError(); err != nil {
		return fmt.Errorf("connection lost: %w", err)
	}
	return errors.New("connection lost")
}

// broken reports whether the connection is of no further use.
func (c *connection) broken() bool { return c.spoilt || !c.nc.IsConnected() }

// close ends the connection. If it is broken, its wire is cut first, because the client would
// otherwise flush its buffer; any other connection has nothing buffered.
func (c *connection) close() {
	if c.nc == nil || c.broken() {
		c.wire.cut()
	}
	if c.nc != nil {
		c.nc.Close()
	}
}
