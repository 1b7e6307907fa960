package connlimit

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
	idleSince atomic.Int64  // Unix nanoseconds; 0 while a request is under way, and before the first
	stranger  *list.Element // its place in group.strangers, nil once it is trusted; guarded by door.mu
}

// group holds the connections of one address. Its door's mu guards it.
type group struct {
	from      netip.Prefix
	open      int       // the number of connections
	strangers list.List // of *conn, the oldest first
}

func (c *conn) setIdle(yes bool) {
	since := int64(0)
	if yes {
		since = time.Now().UnixNano()
	}
	c.idleSince.Store(since)
}

// trust takes the connection out of the strangers. The caller holds door.mu.
func (c *conn) trust() {
	if c.stranger != nil {
		c.group.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.door.mu.Lock()
	c.door.remove(c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the whole answer to a client that is still sending its
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
		bits = 64 // providers usually give each customer a /64
	}
	p, _ := a.Prefix(bits) // it has that many bits
	return p
}
