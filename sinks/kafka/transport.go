package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/auditrelay/auditrelay/config"
)

// transport is a kafka.RoundTripper over connections of its own.
//
// kafka-go's own Transport does not fit a relay. After its context is cancelled it returns,
// while one of its goroutines goes on sending the request. It also chooses the leader itself,
// from metadata of all topics or of a fixed list that cannot be refreshed. Here a request goes
// to the broker that it names, and giving it up closes its connection: after RoundTrip has
// returned, nothing of it is read or sent.
type transport struct {
	clientID string
	tls      *tls.Config    // nil for plain TCP
	sasl     sasl.Mechanism // nil for none
	dialer   net.Dialer

	mu     sync.Mutex
	closed bool               // guarded by mu
	idle   map[string][]*conn // by broker, the one used last at the end; guarded by mu
	busy   map[*conn]struct{} // guarded by mu
}

const (
	dialTimeout = 5 * time.Second
	// idleTimeout is how long a connection may be idle before it is used again: less than the
	// timeouts of load balancers and brokers.
	idleTimeout = 30 * time.Second
)

func newTransport(cfg config.Kafka, clientID string) (*transport, error) {
	tlsConfig, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	m, err := mechanism(cfg.SASL)
	if err != nil {
		return nil, err
	}
	return &transport{
		clientID: clientID,
		tls:      tlsConfig,
		sasl:     m,
		idle:     map[string][]*conn{},
		busy:     map[*conn]struct{}{},
	}, nil
}

// conn is a connection for one request at a time.
type conn struct {
	*protocol.Conn

	broker   string
	raw      net.Conn // the connection that TLS runs over
	frames   *framed  // what Conn runs over
	versions map[protocol.ApiKey]int16
	lastUsed time.Time
}

// abort closes c at once. It sends neither what the kernel has buffered nor the closing message
// of TLS, since both may block.
func (c *conn) abort() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}

// RoundTrip implements kafka.RoundTripper.
func (t *transport) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	c, err := t.grab(ctx, addr.String())
	if err != nil {
		return nil, err
	}
	res, err := c.roundTrip(ctx, req)
	t.release(c, err == nil)
	return res, t.explain(ctx, err)
}

// roundTrip leaves c in an unusable state if it returns an error.
func (c *conn) roundTrip(ctx context.Context, req kafka.Request) (kafka.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline() // the zero time, which means none, cancels an earlier one
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.abort)
	res, err := c.exchanged(req)
	if !stop() && err == nil {
		// The answer has come, though the connection may have been closed by now. With a nil
		// error it would be used again.
		return nil, ctx.Err()
	}
	return res, err
}

// exchanged sends a request, and reads the answer to it. kafka-go panics where the records of an
// answer are not what they say.
func (c *conn) exchanged(req kafka.Request) (res kafka.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("read the broker's answer: %v", p)
		}
	}()
	c.frames.expect(req.ApiKey(), c.versions)
	if res, err = c.RoundTrip(req); err == nil {
		err = answered(req, res)
	}
	return res, err
}

// explain prefers the reason why a connection was closed to the error that the closing caused.
func (t *transport) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	return err
}

// grab returns an idle connection to broker, or makes one.
func (t *transport) grab(ctx context.Context, broker string) (*conn, error) {
	c, err := t.reuse(broker, time.Now())
	if c != nil || err != nil {
		return c, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err = t.connect(dialCtx, broker)
	if err != nil {
		return nil, t.explain(ctx, fmt.Errorf("connect to %s: %w", broker, err))
	}
	return c, nil
}

func (t *transport) reuse(broker string, now time.Time) (*conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	conns := t.idle[broker]
	if len(conns) == 0 {
		return nil, nil
	}
	c := conns[len(conns)-1]
	if now.Sub(c.lastUsed) > idleTimeout {
		return nil, nil // trim closes it
	}
	t.idle[broker] = conns[:len(conns)-1]
	t.busy[c] = struct{}{}
	return c, nil
}

// release gives c back.
func (t *transport) release(c *conn, usable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, c)
	if !usable || t.closed {
		c.abort()
		return
	}
	c.lastUsed = time.Now()
	t.idle[c.broker] = append(t.idle[c.broker], c)
}

// trim closes connections that were idle for too long, among them those to brokers that were
// removed.
func (t *transport) trim(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for broker, conns := range t.idle {
		t.idle[broker] = slices.DeleteFunc(conns, func(c *conn) bool {
			old := now.Sub(c.lastUsed) > idleTimeout
			if old {
				_ = c.raw.Close()
			}
			return old
		})
	}
}

// close closes all connections, including those in use.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.busy {
		c.abort()
	}
	for _, conns := range t.idle {
		for _, c := range conns {
			_ = c.raw.Close()
		}
	}
	clear(t.idle)
}

// track registers c so that close closes it.
func (t *transport) track(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	t.busy[c] = struct{}{}
	return nil
}
