package connlimit

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// conn is an admitted connection.
type conn struct {
	net.Conn
	door      *Door
	group     *group
	idleSince atomic.Int64  // Unix nanoseconds; 0 while a request is under way, and before the first
	trusted   atomic.Bool   // see Trust
	stranger  *list.Element // its place in group.strangers, nil once it is trusted; guarded by door.mu

	reading, writing deadline
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

// Read implements net.Conn.
//
// While a handler works on a request, net/http reads one byte more, in a goroutine of its own, in
// order to cancel the request's context when the client leaves. That costs a system call and two
// changes of goroutines for each request. Nobody needs it of a trusted client, whose requests end
// soon in any case: so such a read returns nothing, at once. All other reads of net/http are for
// a whole buffer.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 && c.trusted.Load() {
		return 0, nil
	}
	if err := c.reading.begin(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	defer c.reading.end()
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.writing.begin(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	defer c.writing.end()
	return c.Conn.Write(b)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.reading.ask(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.writing.ask(t, c.Conn.SetWriteDeadline)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
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

// deadline is when the reads or the writes of a connection fail. net/http asks for ten of them in
// each request, and each would change a timer of the runtime. So a connection gets only the one
// that some read or write is going to wait for, and none if the one that it has will do.
type deadline struct {
	mu    sync.Mutex
	asked time.Time // guarded by mu
	armed time.Time // what the connection has; guarded by mu
	calls int       // reads or writes under way; guarded by mu
}

// ask sets the deadline. Calls under way get it at once.
func (d *deadline) ask(t time.Time, arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = t
	if d.calls == 0 {
		return nil
	}
	d.armed = t
	return arm(t)
}

// begin is called before a read or a write.
func (d *deadline) begin(arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.near() {
		if err := arm(d.asked); err != nil {
			return err
		}
		d.armed = d.asked
	}
	d.calls++
	return nil
}

func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls--
}

// nearShare of the time until a deadline is how much earlier it may be.
const nearShare = 16

// near reports whether the deadline that the connection has is the one that is asked for, or one
// that is hardly earlier. mu is held.
func (d *deadline) near() bool {
	if d.asked.IsZero() || d.armed.IsZero() {
		return d.asked.Equal(d.armed)
	}
	early := d.asked.Sub(d.armed)
	return early == 0 || early > 0 && early < time.Until(d.asked)/nearShare
}
