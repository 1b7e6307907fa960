// Package connlimit bounds the connections that an HTTP server accepts, so that strangers leave
// descriptors for the journal, the sinks and the clients that show a good credential.
//
// A connection is a stranger's until [Trust] is called with the context of one of its
// requests; ingest does so after it has checked the credential. At a bound, a new connection
// is let in and another one is closed for it: the oldest stranger of the address that has
// most of them, so that an attacker drives out only himself. If no address has many, the
// trusted connection that has been idle longest is closed, and after those the oldest
// stranger. A trusted connection with a request under way is never closed; if there are no
// others, the new connection is closed.
//
// Slow clients are cut off by the timeouts of http.Server. Servers speak HTTP/1 only, so that
// a connection costs no more than one request.
package connlimit

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Options bound a door.
type Options struct {
	// Name names the listener in metrics and in the log.
	Name string
	// Total bounds the open connections; at least 1.
	Total int
	// PerAddress bounds the open connections from one address; with 0, only Total does.
	// The IPv6 addresses of one /64 count as one.
	PerAddress int
	Metrics    *Metrics
	Logger     *slog.Logger
}

// Door is a listener with a bound on its connections. It serves one http.Server.
type Door struct {
	net.Listener
	opts Options

	mu     sync.Mutex // guards the fields below, and those of conn and group that say so
	open   map[*conn]struct{}
	groups map[netip.Prefix]*group // those with open connections
	log    rate.Sometimes
}

// New returns a door for the connections of l.
func New(l net.Listener, o Options) *Door {
	o.Total = max(o.Total, 1)
	o.Metrics.begin(o.Name)
	return &Door{Listener: l, opts: o, open: map[*conn]struct{}{}, groups: map[netip.Prefix]*group{}, log: rate.Sometimes{Interval: time.Minute}}
}

// Guard makes a server report to the door which connections are idle, and sets its log. The
// server must not be serving yet.
func (d *Door) Guard(server *http.Server) {
	server.ErrorLog = ErrorLog(d.opts.Name, d.opts.Logger, d.opts.Metrics)
	server.ConnState = func(nc net.Conn, state http.ConnState) {
		if c := ours(nc); c != nil {
			c.setIdle(state == http.StateIdle)
		}
	}
	server.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, contextKey{}, ours(nc))
	}
}

type contextKey struct{}

// ours returns the door's connection that nc is or that it wraps with TLS, and nil if there
// is none.
func ours(nc net.Conn) *conn {
	if tls, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = tls.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// Trust records that the connection of this request has shown a good credential. From then on
// the context of a request is no longer cancelled when its client leaves.
func Trust(ctx context.Context) {
	if c, _ := ctx.Value(contextKey{}).(*conn); c != nil && !c.trusted.Swap(true) {
		c.door.mu.Lock()
		defer c.door.mu.Unlock()
		c.trust()
	}
}

// answersBuffered bounds the kernel's buffer of answers to a client that does not read them.
const answersBuffered = 64 << 10

// Accept waits for a connection and admits it.
func (d *Door) Accept() (net.Conn, error) {
	for {
		raw, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := d.admit(raw); c != nil {
			if tcp, ok := raw.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(answersBuffered) // if it fails, the kernel keeps its own size
			}
			return c, nil
		}
		_ = raw.Close()
	}
}

// Open returns the number of open connections.
func (d *Door) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// The bounds for which connections are closed.
const (
	reasonTotal   = "total"
	reasonAddress = "address"
)

// admit lets raw in, perhaps in exchange for another connection. It returns nil if no
// connection may be closed for raw.
func (d *Door) admit(raw net.Conn) *conn {
	from := addressOf(raw)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[from]
	if g == nil {
		g = &group{from: from}
	}
	switch {
	case d.opts.PerAddress > 0 && g.open >= d.opts.PerAddress:
		if !d.replace(reasonAddress, g, d.expendable(g, g)) {
			return nil
		}
	case len(d.open) >= d.opts.Total:
		if !d.replace(reasonTotal, g, d.expendable(d.largest(g), nil)) {
			return nil
		}
	}
	c := &conn{Conn: raw, door: d, group: g}
	c.stranger = g.strangers.PushBack(c)
	d.open[c] = struct{}{}
	g.open++
	d.groups[from] = g // it may be new, or its last connection was just closed
	d.opts.Metrics.open.WithLabelValues(d.opts.Name).Inc()
	return c
}

// largest returns the group with the most strangers, or g if no other has more.
func (d *Door) largest(g *group) *group {
	for _, other := range d.groups {
		if other.strangers.Len() > g.strangers.Len() {
			g = other
		}
	}
	return g
}

// The strangers of one address are a crowd if they are more than this share of all
// connections.
const crowdShare = 8

// expendable chooses the connection to close: the oldest stranger of crowd if it is one, or
// else the connection that has been idle longest, only among those of within unless that is
// nil. It returns nil if there is none. The caller holds mu.
func (d *Door) expendable(crowd, within *group) *conn {
	if crowd.strangers.Len() <= d.opts.Total/crowdShare {
		if c := d.longestIdle(within); c != nil {
			return c
		}
	}
	if crowd.strangers.Len() == 0 {
		return nil
	}
	c, _ := crowd.strangers.Front().Value.(*conn)
	return c
}

// longestIdle looks at every trusted connection, which is affordable since many strangers
// are closed before.
func (d *Door) longestIdle(within *group) (found *conn) {
	oldest := int64(0)
	for c := range d.open {
		since := c.idleSince.Load()
		if c.stranger == nil && since != 0 && (within == nil || c.group == within) && (found == nil || since < oldest) {
			found, oldest = c, since
		}
	}
	return found
}

// remove forgets a connection, unless that was done before. The caller holds mu.
func (d *Door) remove(c *conn) {
	if _, here := d.open[c]; !here {
		return
	}
	delete(d.open, c)
	c.trust()
	if c.group.open--; c.group.open == 0 {
		delete(d.groups, c.group.from)
	}
	d.opts.Metrics.open.WithLabelValues(d.opts.Name).Dec()
}

// replace closes the victim for a connection of g, counts that, and logs it at most once a
// minute. Without a victim it reports false, and the new connection is the one to be closed.
// The caller holds mu.
func (d *Door) replace(reason string, g *group, victim *conn) bool {
	counter := d.opts.Metrics.refused
	if victim != nil {
		counter = d.opts.Metrics.evicted
		d.remove(victim)
		_ = victim.Conn.Close()
	}
	counter.WithLabelValues(d.opts.Name, reason).Inc()
	d.log.Do(func() {
		d.opts.Logger.Warn("there are too many connections; for each new one, one is closed",
			"listener", d.opts.Name, "bound", reason, "newest_from", g.from.String(), "open", len(d.open), "refused", victim == nil)
	})
	return victim != nil
}

// Metrics count the connections of all doors of a process.
type Metrics struct {
	open             *prometheus.GaugeVec
	refused, evicted *prometheus.CounterVec
	handshakes       *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_connections_open", Help: "Connections of clients that are open, by listener.",
		}, []string{"listener"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_connections_refused_total", Help: "New connections that were closed at once, by listener and the bound that was reached (total, address).",
		}, []string{"listener", "reason"}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_connections_evicted_total", Help: "Connections that were closed to let a new one in, by listener and the bound that was reached (total, address).",
		}, []string{"listener", "reason"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_tls_handshakes_failed_total",
			Help: "Failed TLS handshakes, by listener and reason: certificate (one side refuses the other's), plain_http (the client speaks HTTP) or other.",
		}, []string{"listener", "reason"}),
	}
	r.MustRegister(m.open, m.refused, m.evicted, m.handshakes)
	return m
}

// begin creates a listener's series, so that they are exported before anything happens.
func (m *Metrics) begin(listener string) {
	m.open.WithLabelValues(listener)
	for _, reason := range []string{reasonTotal, reasonAddress} {
		m.refused.WithLabelValues(listener, reason)
		m.evicted.WithLabelValues(listener, reason)
	}
	for _, reason := range []string{handshakeCertificate, handshakePlain, handshakeOther} {
		m.handshakes.WithLabelValues(listener, reason)
	}
}
