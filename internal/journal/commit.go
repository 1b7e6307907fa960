package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// worthAhead is how many bytes must wait before the next record is packed while another
	// one is being written. With fewer, one larger group later costs less than two groups.
	worthAhead = 128 << 10
	// commitTimeout bounds how long an append waits for the store. After that the sender is
	// told to push again.
	commitTimeout = 15 * time.Second
	// After slowCommit a record that is being written no longer holds up the next one: the
	// answer of a cluster may be lost. At most mostWrites records are written at once.
	slowCommit = 20 * time.Millisecond
	mostWrites = 2
)

// committer commits appends in groups. There is no goroutine for it: an append that finds
// nobody at work leads, and packs what waits into one record, up to recordTarget bytes. When
// it has written the record it wakes the others whose events are in it, and passes the lead
// to an append that came meanwhile. While one record is being written, another may be
// packed. Records are written one at a time, in the order in which they were packed, so the
// events of a push keep their order, unless one takes very long.
//
// Before it takes a group, the leader yields once to goroutines about to append, and waits
// for the senders of the last commit: see returning. On an idle journal an append is
// committed at once.
//
// Each commit has a fixed cost: a write, a sync, and waking people up. So larger groups cost
// less per event.
type committer struct {
	j        *Journal
	patience time.Duration // see commitTimeout

	spare  sync.Pool      // memory for records
	active sync.WaitGroup // the appends under way

	mu      sync.Mutex
	changed *sync.Cond // signalled when whoever packs may go on
	total   uint64     // the events that the log ever had; guarded by mu
	queue   []segment  // guarded by mu
	senders returning  // guarded by mu
	waiting int        // bytes in queue; guarded by mu
	packing bool       // somebody packs a record, or was told to; guarded by mu
	writes  int        // records that are being written; guarded by mu
	slow    int        // those of them that take longer than slowCommit; guarded by mu
	closed  bool       // guarded by mu
}

// segment is a part of an append, and goes into one record whole.
type segment struct {
	data   []byte
	events int
	whole  *pending
}

// pending is an append that waits for each of its segments to be settled.
type pending struct {
	since  time.Time // when it was appended
	source string    // of its events
	// wake gets true when the append shall lead, and false when it is settled.
	wake chan bool

	mu     sync.Mutex
	left   int       // segments not settled yet; guarded by mu
	err    error     // the first one; guarded by mu
	need   int64     // bytes of its largest record; guarded by mu
	record store.Pos // the newest record of a segment; guarded by mu
}

// settle ends a segment: it is in the record at a position, or failed.
func (p *pending) settle(record store.Pos, err error, need int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.need, p.record = max(p.need, need), max(p.record, record)
	if p.err == nil {
		p.err = err
	}
	if p.left--; p.left == 0 {
		p.wake <- false
	}
}

func newCommitter(j *Journal) *committer {
	c := &committer{j: j, patience: commitTimeout, total: j.end.get().events}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// append queues b and waits until it is committed. It knows no context: b's memory is
// in use until then, and patience bounds the wait. need is the size of the largest record it
// took part in.
func (c *committer) append(b *record.Batch) (need int64, err error) {
	fitting, err := record.Fit(b, c.j.MaxEvent())
	if err != nil {
		return 0, err
	}
	p := c.commit(fitting)
	b.Committed(uint64(p.record))
	return p.need, p.err
}

// commit queues b, and returns when it is settled.
func (c *committer) commit(b *record.Batch) *pending {
	p := &pending{since: time.Now(), source: b.Source(), left: b.Segments(), wake: make(chan bool, 1)}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		p.err = ErrClosed
		return p
	}
	for i := range b.Segments() {
		data, events := b.Segment(i)
		c.queue = append(c.queue, segment{data: data, events: events, whole: p})
		c.waiting += len(data)
	}
	c.senders.queued += b.Segments()
	c.active.Add(1)
	defer c.active.Done()
	leads := c.due()
	if leads {
		c.packing = true
	} else if c.packing && c.gathered() {
		c.changed.Signal()
	}
	c.mu.Unlock()
	for leads || <-p.wake {
		leads = false
		c.lead()
	}
	return p
}

// due reports whether somebody should pack a record now. mu is held.
func (c *committer) due() bool {
	return len(c.queue) > 0 && !c.packing && (c.free() || c.waiting >= worthAhead)
}

// free reports whether a record may be written now. mu is held.
func (c *committer) free() bool { return c.writes == c.slow && c.writes < mostWrites }

// pass gives the lead to the oldest append in the queue, if a record is due. mu is held.
func (c *committer) pass() {
	if c.due() {
		c.packing = true
		c.queue[0].whole.wake <- true
	}
}

// lead packs a record of what waits, and writes it.
func (c *committer) lead() {
	group := c.take()
	if len(group) == 0 { // all of them were late
		c.mu.Lock()
		defer c.mu.Unlock()
		c.packing = false
		c.pass()
		return
	}
	p := c.pack(group)
	c.begin(p)
	at, err := c.write(p)
	c.end(p, err)
	c.finish(p, at, err)
}

// begin waits until the record may be written, and passes the lead.
func (c *committer) begin(p *packed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.free() {
		c.changed.Wait()
	}
	c.packing = false
	c.writes++
	c.total += uint64(p.events)
	p.total = c.total
	p.overdue = time.AfterFunc(slowCommit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.slow++
		c.pass()
		c.changed.Signal()
	})
	c.pass()
}

// end notes that the record is written, or failed. The events of a record that was certainly
// not stored do not count.
func (c *committer) end(p *packed, err error) {
	slow := !p.overdue.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes--
	if slow {
		c.slow--
	}
	if errors.Is(err, ErrFull) && c.total == p.total {
		c.total -= uint64(p.events)
	}
	if err == nil {
		c.senders.released(len(p.group), time.Since(p.start), time.Now())
	}
	c.pass()
	c.changed.Signal()
}

// learn counts the events of a record that another relay has appended, and returns the new total.
func (c *committer) learn(events uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += events
	return c.total
}

// take waits for the senders of the last commit, and takes as many segments as fit into a
// record, in order.
func (c *committer) take() []segment {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.regroup()
	c.dropLate()
	n, size, target := 0, 0, min(recordTarget, c.j.MaxEvent())
	for n < len(c.queue) && (n == 0 || size+len(c.queue[n].data) <= target) {
		size += len(c.queue[n].data)
		n++
	}
	return c.shift(n)
}

// errLate means that the commits before an append took all of its time.
var errLate = fmt.Errorf("%w: the store does not answer in time", ErrUnavailable)

// dropLate refuses appends after a wait of patience. Otherwise, while the store does not
// answer, senders would wait as long for each group before theirs. mu is held.
func (c *committer) dropLate() {
	n := 0
	for n < len(c.queue) && time.Since(c.queue[n].whole.since) > c.patience {
		c.queue[n].whole.settle(0, errLate, 0)
		n++
	}
	c.shift(n)
}

// shift removes the first n segments from the queue. mu is held.
func (c *committer) shift(n int) []segment {
	group := slices.Clone(c.queue[:n])
	for _, s := range group {
		c.waiting -= len(s.data)
	}
	c.queue = slices.Delete(c.queue, 0, n)
	return group
}

// close returns when all appends have ended. Later ones get ErrClosed.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.changed.Signal()
	c.active.Wait()
}
