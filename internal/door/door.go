// Package door bounds the connections of strangers to an HTTP server, so descriptors are
// left for the journal, the sinks and good clients. It also turns a handler's panic into
// an answer of 500 and an error in the log, with the stack.
//
// A connection is a stranger's until [Trust] is called with the context of one of its
// requests; ingest does so after a good credential. At the bound, a new connection gets
// in and another is closed for it: the oldest of the largest crowd of strangers from
// one address, so an attacker drives out itself. Without a crowd, the trusted
// connection with the longest idle time goes, and then the oldest stranger. A trusted
// connection at work is never closed; if there are only such, the new one is closed.
//
// Ingest speaks HTTP/1 only: a connection then costs no more than one push, and the bound on
// connections bounds everything.
package door

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Options bound a door.
type Options struct {
	// Name is the listener's, in metrics and the log.
	Name string
	// Total bounds the open connections; at least 1.
	Total int
	// PerAddress bounds those from one address; 0 for no bound but Total. The
	// IPv6 addresses of one /64 count as one.
	PerAddress int
	Metrics    *Metrics
	Logger     *slog.Logger
}

// Door is a listener with a bound on its connections. It serves one http.Server.
type Door struct {
	net.Listener
	opts Options

	mu     sync.Mutex // guards the fields below, and the marked ones of conn and group
	open   map[*conn]struct{}
	groups map[netip.Prefix]*group // of open, by address
	logged time.Time
	quiet  int // closed connections before the next log line
}

// New puts a door before a listener.
func New(l net.Listener, o Options) *Door {
	o.Total = max(o.Total, 1)
	o.Metrics.begin(o.Name)
	return &Door{Listener: l, opts: o, open: map[*conn]struct{}{}, groups: map[netip.Prefix]*group{}}
}

// Guard makes a server report to the door, and passes it through [Harden]. The server
// must not be serving yet.
func (d *Door) Guard(server *http.Server) {
	Harden(server, d.opts.Name, d.opts.Logger)
	server.ErrorLog = slog.NewLogLogger(newHandshakes(d.opts), slog.LevelError)
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

// ours finds a door's connection below TLS; nil if there is none.
func ours(nc net.Conn) *conn {
	if tls, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = tls.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// Trust says: the connection of this request has shown a good credential.
func Trust(ctx context.Context) {
	if c, _ := ctx.Value(contextKey{}).(*conn); c != nil {
		c.trust()
	}
}

// Accept waits for a connection and admits it.
func (d *Door) Accept() (net.Conn, error) {
	for {
		raw, err := d.Listener.Accept()
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				d.makeRoom()
			}
			return nil, err
		}
		if c := d.admit(raw); c != nil {
			if tcp, ok := raw.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(answersBuffered) // else the kernel keeps its own size
			}
			return c, nil
		}
		_ = raw.Close()
	}
}

// answersBuffered bounds the kernel's buffer of answers for a client without interest
// in them.
const answersBuffered = 64 << 10

// The reasons for closing connections.
const (
	reasonTotal       = "total"
	reasonAddress     = "address"
	reasonDescriptors = "descriptors"
)

// admit gives raw its place, perhaps in exchange for another connection; nil: there is
// none.
func (d *Door) admit(raw net.Conn) *conn {
	from := addressOf(raw)
	d.mu.Lock()
	g := d.groups[from]
	if g == nil {
		g = &group{from: from}
	}
	var reason string
	var victim *conn
	switch {
	case d.opts.PerAddress > 0 && g.open >= d.opts.PerAddress:
		reason, victim = reasonAddress, d.expendable(g, true)
	case len(d.open) >= d.opts.Total:
		reason, victim = reasonTotal, d.expendable(d.largest(g), false)
	}
	var c *conn
	if reason == "" || victim != nil {
		d.remove(victim)
		c = d.add(raw, g)
	}
	open := len(d.open)
	d.mu.Unlock()
	if reason != "" {
		d.closed(victim, from, reason, open)
	}
	return c
}

// makeRoom closes a connection if the process cannot open any more.
func (d *Door) makeRoom() {
	d.mu.Lock()
	victim := d.expendable(d.largest(&group{}), false)
	d.remove(victim)
	open := len(d.open)
	d.mu.Unlock()
	if victim != nil {
		d.closed(victim, victim.group.from, reasonDescriptors, open)
	}
}

// largest is the group with the most strangers; of equals it is g.
func (d *Door) largest(g *group) *group {
	for _, other := range d.groups {
		if other.strangers.Len() > g.strangers.Len() {
			g = other
		}
	}
	return g
}

// The strangers of one address become a crowd at crowdShare of all connections.
const crowdShare = 8

// expendable chooses the connection to go first: of g's strangers if they are a crowd,
// else an idle one, of g alone or of all. The caller holds mu.
func (d *Door) expendable(g *group, alone bool) *conn {
	if g.strangers.Len() <= d.opts.Total/crowdShare {
		if c := d.longestIdle(g, alone); c != nil {
			return c
		}
	}
	if g.strangers.Len() == 0 {
		return nil
	}
	c, _ := g.strangers.Front().Value.(*conn)
	return c
}

// longestIdle finds the trusted connection with the longest idle time, of g alone or of
// all. It looks at every one, but seldom: strangers go first if they are many.
func (d *Door) longestIdle(g *group, alone bool) (found *conn) {
	oldest := int64(0)
	for c := range d.open {
		since := c.idleSince.Load()
		if c.stranger == nil && since != 0 && (!alone || c.group == g) && (found == nil || since < oldest) {
			found, oldest = c, since
		}
	}
	return found
}

func (d *Door) add(raw net.Conn, g *group) *conn {
	c := &conn{Conn: raw, door: d, group: g}
	d.open[c] = struct{}{}
	g.open++
	d.groups[g.from] = g // it may be new, or the one that was closed was its last
	c.stranger = g.strangers.PushBack(c)
	d.opts.Metrics.open.WithLabelValues(d.opts.Name).Inc()
	return c
}

// remove takes a connection off the books; it may be nil, or gone already.
func (d *Door) remove(c *conn) {
	if _, here := d.open[c]; !here {
		return
	}
	delete(d.open, c)
	c.noStranger()
	if c.group.open--; c.group.open == 0 {
		delete(d.groups, c.group.from)
	}
	d.opts.Metrics.open.WithLabelValues(d.opts.Name).Dec()
}

const logEvery = time.Minute

// closed ends the victim, nil if the new connection itself is not let in,
// counts it, and says so once a minute.
func (d *Door) closed(victim *conn, from netip.Prefix, reason string, open int) {
	if victim != nil {
		_ = victim.Conn.Close()
		d.opts.Metrics.evicted.WithLabelValues(d.opts.Name, reason).Inc()
	} else {
		d.opts.Metrics.refused.WithLabelValues(d.opts.Name, reason).Inc()
	}
	now := time.Now()
	d.mu.Lock()
	if !d.logged.IsZero() && now.Sub(d.logged) < logEvery {
		d.quiet++
		d.mu.Unlock()
		return
	}
	before := d.quiet
	d.logged, d.quiet = now, 0
	d.mu.Unlock()
	d.opts.Logger.Warn("too many connections: one is closed for each new one", "listener", d.opts.Name,
		"reason", reason, "newest_from", from.String(), "open", open, "refused", victim == nil, "unlogged_before", before)
}
