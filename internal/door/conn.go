package door

import (
	"container/list"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// conn is an admitted connection.
type conn struct {
	net.Conn
	door      *Door
	group     *group
	idleSince atomic.Int64  // Unix nanoseconds; 0 while a request is under way, or before the first
	stranger  *list.Element // its place in group.strangers, nil once it is trusted; guarded by door.mu
}

func (c *conn) setIdle(yes bool) {
	since := int64(0)
	if yes {
		since = time.Now().UnixNano()
	}
	c.idleSince.Store(since)
}

func (c *conn) trust() {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	c.noStranger()
}

// noStranger takes a connection out of the strangers. The caller holds door.mu.
func (c *conn) noStranger() {
	if c.stranger != nil {
		c.group.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// group is the connections of one address. It is guarded by its door's mu.
type group struct {
	from      netip.Prefix
	open      int       // connections
	strangers list.List // of *conn, the oldest first
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.door.mu.Lock()
	c.door.remove(c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http send an answer whole to a client in the middle of its
// request.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// addressOf returns the address of one client.
func addressOf(c net.Conn) netip.Prefix {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64 // the usual share of one customer of a provider
	}
	p, _ := a.Prefix(bits) // the bits fit
	return p
}
