package door

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// conn is an admitted one.
type conn struct {
	net.Conn
	door      *Door
	since     time.Time
	group     *group
	idleSince atomic.Int64 // Unix nanoseconds; 0 while a request is under way, or before the first
	trusted   atomic.Bool
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
	if c.trusted.Swap(true) {
		return
	}
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	if _, here := c.door.open[c]; here {
		c.door.groups.trust(c)
	}
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

// group is the connections of one address. It is guarded by its door's mu.
type group struct {
	from      netip.Prefix
	open      int       // connections
	strangers list.List // of *conn, the oldest first
	place     int       // in groups.order
}

func (g *group) oldestStranger() *conn {
	if g.strangers.Len() == 0 {
		return nil
	}
	c, _ := g.strangers.Front().Value.(*conn)
	return c
}

// groups are those with connections, as a heap with the most strangers on top.
type groups struct {
	byAddress map[netip.Prefix]*group
	order     *byStrangers
}

func newGroups() groups { return groups{byAddress: map[netip.Prefix]*group{}, order: &byStrangers{}} }

// of returns the group of an address, perhaps an empty one outside the heap.
func (gs groups) of(from netip.Prefix) *group {
	if g := gs.byAddress[from]; g != nil {
		return g
	}
	return &group{from: from}
}

// largest is the group with the most strangers; of equals it is g, if g is not nil.
func (gs groups) largest(g *group) *group {
	if len(*gs.order) == 0 {
		return g
	}
	top := (*gs.order)[0]
	if g != nil && g.strangers.Len() >= top.strangers.Len() {
		return g
	}
	return top
}

func (gs groups) add(c *conn) {
	g := c.group
	if g.open++; g.open == 1 {
		gs.byAddress[g.from] = g
		heap.Push(gs.order, g)
	}
	c.stranger = g.strangers.PushBack(c)
	heap.Fix(gs.order, g.place)
}

func (gs groups) trust(c *conn) {
	if c.stranger != nil {
		c.group.strangers.Remove(c.stranger)
		c.stranger = nil
		heap.Fix(gs.order, c.group.place)
	}
}

func (gs groups) remove(c *conn) {
	gs.trust(c) // a stranger no more
	if c.group.open--; c.group.open == 0 {
		heap.Remove(gs.order, c.group.place)
		delete(gs.byAddress, c.group.from)
	}
}

// byStrangers implements heap.Interface.
type byStrangers []*group

func (b byStrangers) Len() int           { return len(b) }
func (b byStrangers) Less(i, j int) bool { return b[i].strangers.Len() > b[j].strangers.Len() }

func (b byStrangers) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].place, b[j].place = i, j
}

// Push implements heap.Interface.
func (b *byStrangers) Push(x any) {
	g, _ := x.(*group)
	g.place = len(*b)
	*b = append(*b, g)
}

// Pop implements heap.Interface.
func (b *byStrangers) Pop() any {
	last := len(*b) - 1
	g := (*b)[last]
	*b = (*b)[:last]
	return g
}
