package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/diskbudget"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

const (
	// commitsInFlight bounds the records on their way to the disk: while one is
	// synced, the next is compressed and handed over. More would only make groups
	// smaller.
	commitsInFlight = 2
	// A second commit needs worthAhead bytes in the queue. With fewer, one larger
	// group later costs less than two groups.
	worthAhead = 128 << 10
	// After slowCommit, a pending commit no longer delays the next one: its answer may
	// be lost, or the servers may be far away.
	slowCommit = 20 * time.Millisecond
	// commitTimeout bounds how long an append waits for the server, retries
	// included. Beyond it the sender is told to push again.
	commitTimeout  = 15 * time.Second
	attemptTimeout = streamserver.PublishTimeout // of one attempt
)

// committer commits appends in groups. One goroutine takes the appends made during the
// commits in flight, up to recordTarget bytes, and publishes them as one record. Before it
// takes a group, it yields once to goroutines about to append, and waits for the senders of
// the last commit: see returning. On an idle journal an append is committed at once.
//
// Each commit has a fixed cost: the server's work on a message, a write and an fsync. So
// larger groups cost less per event.
type committer struct {
	js      jetstream.JetStream
	epoch   func() *datadir.Epoch // the server's
	limit   func() int            // the largest segment of a record at present
	subject string
	metrics *metrics
	// After patience an append is not tried again. An attempt under way by then still
	// takes attemptTimeout at the most.
	patience time.Duration
	// committed is called for each record, and makeRoom once before a record is refused
	// for want of so many bytes.
	committed func(record uint64, events, stored int, shares []diskbudget.Share)
	makeRoom  func(ctx context.Context, need int64) error
	sealed    func(Sealed)            // see Options.Sealed
	turns     func() int              // how often the stream went back
	refused   atomic.Pointer[refusal] // the last append's; nil where it succeeded

	spare chan []byte    // memory for records
	wg    sync.WaitGroup // the loop and the commits in flight

	mu       sync.Mutex
	changed  *sync.Cond // signalled when queue grows, when a commit ends or is slow, and at close
	queue    []segment  // guarded by mu
	senders  returning  // guarded by mu
	waiting  int        // bytes in queue; guarded by mu
	inFlight int        // commits; guarded by mu
	slow     int        // commits in flight for longer than slowCommit; guarded by mu
	closed   bool       // guarded by mu
	broken   error      // set once the embedded server gave a position out twice; guarded by mu
	failed   func(error)
	place    func(at history.Place, again bool) error // see losses.Ledger.Place
}

// refusal is why an append failed.
type refusal struct {
	err  error
	at   time.Time
	need int64 // bytes without room; 0 if it failed for another reason
}

// segment is a part of an append, and goes into one record whole.
type segment struct {
	data   []byte
	events int
	whole  *pending
}

// pending is an append, waiting for each of its segments to be settled.
type pending struct {
	since  time.Time // when it was appended
	source string    // of its events
	done   chan struct{}

	mu     sync.Mutex
	left   int    // segments not settled yet; guarded by mu
	err    error  // the first one; guarded by mu
	need   int64  // bytes of the record without room; guarded by mu
	record uint64 // the newest record of a segment; guarded by mu
}

// settle ends a segment: it is in the record at a position, or failed.
func (p *pending) settle(record uint64, err error, need int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.need, p.record = max(p.need, need), max(p.record, record)
	if p.err == nil {
		p.err = err
	}
	if p.left--; p.left == 0 {
		close(p.done)
	}
}

func newCommitter(j *Journal, failed func(error), sealed func(Sealed)) *committer {
	return startCommitter(&committer{
		js: j.conn.JetStream, epoch: j.conn.Epoch, limit: j.conn.PayloadLimit, subject: j.names.eventsSubject,
		metrics: j.metrics, place: j.Losses.Place, failed: failed, patience: commitTimeout,
		committed: j.committed, makeRoom: j.makeRoom, sealed: sealed, turns: j.Turns,
	})
}

func startCommitter(c *committer) *committer {
	c.spare = make(chan []byte, commitsInFlight)
	c.changed = sync.NewCond(&c.mu)
	c.wg.Add(1)
	go c.loop()
	return c
}

// append queues b and waits until it is committed. It knows no context: b's memory is
// in use until then, and patience bounds the wait.
func (c *committer) append(b *record.Batch) error {
	fitting, err := record.Fit(b, c.limit())
	if err != nil {
		return err
	}
	at, need, err := c.commit(fitting)
	b.Committed(at)
	switch {
	case err == nil:
		c.refused.Store(nil)
	case !errors.Is(err, ErrClosed):
		c.refused.Store(&refusal{err, time.Now(), need})
	}
	return err
}

// commit queues b and waits. at is the position of its last record. If there is no room,
// need is the record's size.
func (c *committer) commit(b *record.Batch) (at uint64, need int64, err error) {
	if err := c.epoch().Ended(); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p := &pending{since: time.Now(), source: b.Source(), left: b.Segments(), done: make(chan struct{})}
	c.mu.Lock()
	if c.closed || c.broken != nil {
		defer c.mu.Unlock()
		return 0, 0, cmp.Or(c.broken, ErrClosed)
	}
	for i := range b.Segments() {
		data, events := b.Segment(i)
		s := segment{data: data, events: events, whole: p}
		c.queue = append(c.queue, s)
		c.waiting += len(s.data)
	}
	c.senders.queued += b.Segments()
	c.mu.Unlock()
	c.changed.Signal()
	<-p.done
	return p.record, p.need, p.err
}

func (c *committer) loop() {
	defer c.wg.Done()
	var raw []byte
	for {
		group := c.take()
		if group == nil {
			return
		}
		raw = raw[:0]
		events := 0
		for _, s := range group {
			raw = append(raw, s.data...)
			events += s.events
		}
		c.publish(group, raw, events)
	}
}

// take waits until a commit may begin, and takes as many segments as fit into a
// record, in order. It returns nil once the committer is closed and the queue empty.
func (c *committer) take() []segment {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.dropLate(); !c.ready(); c.dropLate() {
		if c.closed && len(c.queue) == 0 {
			return nil
		}
		c.changed.Wait()
	}
	c.regroup()
	c.inFlight++
	n, size, target := 0, 0, min(recordTarget, c.limit())
	for n < len(c.queue) && (n == 0 || size+len(c.queue[n].data) <= target) {
		size += len(c.queue[n].data)
		n++
	}
	return c.shift(n)
}

// ready reports whether a commit may begin. mu is held.
func (c *committer) ready() bool {
	if len(c.queue) == 0 || c.inFlight == commitsInFlight {
		return false
	}
	return c.inFlight == c.slow || c.waiting >= worthAhead
}

// errLate means the commits before an append took all of its time.
var errLate = fmt.Errorf("%w: the server does not answer in time", ErrUnavailable)

// dropLate refuses appends after a wait of patience. Otherwise, while the server is away,
// senders would wait as long for each group before theirs. mu is held.
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
	group := append([]segment(nil), c.queue[:n]...)
	for _, s := range group {
		c.waiting -= len(s.data)
	}
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return group
}

// count adds to the commits in flight, and to the slow ones among them.
func (c *committer) count(inFlight, slow int) {
	c.mu.Lock()
	c.inFlight += inFlight
	c.slow += slow
	c.mu.Unlock()
	c.changed.Signal()
}

func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.changed.Signal()
	c.wg.Wait()
}
