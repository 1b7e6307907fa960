package realservers

import (
	"net"
	"sync"
)

// datadogGate can be shut: then connections break, and new ones do at once.
type datadogGate struct {
	net.Listener

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[net.Conn]struct{}
}

func (g *datadogGate) shut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	if closed {
		for c := range g.conns {
			_ = c.Close()
		}
		clear(g.conns)
	}
}

// Accept implements net.Listener.
func (g *datadogGate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.admit(c) {
			return &datadogConn{Conn: c, gate: g}, nil
		}
		_ = c.Close()
	}
}

func (g *datadogGate) admit(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[c] = struct{}{}
	}
	return !g.closed
}

// datadogConn is forgotten when it is closed.
type datadogConn struct {
	net.Conn

	gate *datadogGate
}

// Close implements net.Conn.
func (c *datadogConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
