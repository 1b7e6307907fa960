package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

const (
	// commitsInFlight is how many records may be on their way to the disk at
	// once: while one is being synced the next is compressed and handed over.
	// More would only make groups smaller.
	commitsInFlight = 2
	// worthAhead is how many bytes must wait for that: with fewer, a larger group
	// later costs less than two now.
	worthAhead = 128 << 10
	// slowCommit is after how long a commit is not waited for by fewer: its answer
	// may be lost, or the servers be far away.
	slowCommit = 20 * time.Millisecond
	// commitTimeout bounds how long an append waits for the server, retries
	// included. Beyond it the sender is told to push again.
	commitTimeout = 15 * time.Second
	// attemptTimeout bounds one try; a leader's change takes some seconds.
	attemptTimeout = 5 * time.Second
	retryPause     = 200 * time.Millisecond
)

// committer does the group commit: one goroutine takes whatever has been
// appended while the commits in flight were syncing, up to target bytes, and
// publishes it as one record. On an idle journal an append is committed at
// once; under load the groups grow by themselves. There is no timer.
type committer struct {
	js      jetstream.JetStream
	epoch   func() *datadir.Epoch // of the server
	limit   func() int            // the largest segment that a record can hold at present
	subject string
	metrics *metrics
	// patience is after how long an append is not tried again. One attempt may be
	// under way then, which takes attemptTimeout at the most.
	patience time.Duration
	// committed is told of each record, and makeRoom called once before one is
	// refused for want of so many bytes.
	committed func(record uint64, stored int, shares []share)
	makeRoom  func(ctx context.Context, need int64) error
	refused   atomic.Pointer[refusal] // the last append's; nil where it succeeded

	spare chan []byte    // memory for records
	wg    sync.WaitGroup // the loop and the commits in flight

	mu       sync.Mutex
	changed  *sync.Cond // signalled when queue grows, when a commit ends or is slow, and at close
	queue    []segment  // guarded by mu
	waiting  int        // bytes in queue; guarded by mu
	inFlight int        // commits; guarded by mu
	slow     int        // of the commits in flight, those for longer than slowCommit; guarded by mu
	closed   bool       // guarded by mu
	broken   error      // set once the embedded server gave a position out twice; guarded by mu
	failed   func(error)
	placed   func(at place, again bool) error // see Journal.placed
}

// refusal is why an append failed.
type refusal struct {
	err  error
	at   time.Time
	need int64 // bytes that would have fit it; 0 where it was not for want of room
}

// segment is a part of an append that goes into one record whole.
type segment struct {
	data   []byte
	events int
	whole  *pending
}

// pending is an append that waits. It is told by each of its segments.
type pending struct {
	since  time.Time // when it was appended
	source string    // whose events they are
	done   chan struct{}

	mu   sync.Mutex
	left int   // segments not committed yet; guarded by mu
	err  error // the first; guarded by mu
	need int64 // of the record that was refused; guarded by mu
}

func (p *pending) settle(err error, need int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.need = max(p.need, need)
	if p.err == nil {
		p.err = err
	}
	if p.left--; p.left == 0 {
		close(p.done)
	}
}

func newCommitter(j *Journal, failed func(error)) *committer {
	c := &committer{
		js: j.conn.JetStream, epoch: j.conn.epoch, limit: j.conn.recordLimit, subject: j.names.eventsSubject,
		metrics: j.metrics, placed: j.placed, failed: failed, patience: commitTimeout,
		committed: j.committed, makeRoom: j.makeRoom,
		spare: make(chan []byte, commitsInFlight),
	}
	c.changed = sync.NewCond(&c.mu)
	c.wg.Add(1)
	go c.loop()
	return c
}

// append queues b and waits until it is committed. It waits even when the
// caller's context ends, as b's memory is in use; patience bounds that.
func (c *committer) append(b *Batch) error {
	b, err := fitting(b, c.limit())
	if err != nil {
		return err
	}
	need, err := c.commit(b)
	switch {
	case err == nil:
		c.refused.Store(nil)
	case !errors.Is(err, ErrClosed):
		c.refused.Store(&refusal{err, time.Now(), need})
	}
	return err
}

// commit queues b and waits. Where there is no room, need is how many bytes the
// record had that did not fit.
func (c *committer) commit(b *Batch) (need int64, err error) {
	if err := c.epoch().Ended(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p := &pending{since: time.Now(), source: b.group.Source, left: len(b.cuts), done: make(chan struct{})}
	c.mu.Lock()
	if c.closed || c.broken != nil {
		defer c.mu.Unlock()
		return 0, cmp.Or(c.broken, ErrClosed)
	}
	for i, cut := range b.cuts {
		s := segment{data: b.segment(i), events: cut.events, whole: p}
		c.queue = append(c.queue, s)
		c.waiting += len(s.data)
	}
	c.mu.Unlock()
	c.changed.Signal()
	<-p.done
	return p.need, p.err
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
// record, in order: also what came while it waited. It returns nil when the
// committer is closed and all is taken.
func (c *committer) take() []segment {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.dropLate(); !c.ready(); c.dropLate() {
		if c.closed && len(c.queue) == 0 {
			return nil
		}
		c.changed.Wait()
	}
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

// errLate says that the commits before an append took all its time.
var errLate = fmt.Errorf("%w: the server does not answer in time", ErrUnavailable)

// dropLate refuses what has waited for too long behind the commits in flight:
// without it a server that is away would keep senders waiting for as many
// times patience as there are groups before theirs. mu is held.
func (c *committer) dropLate() {
	n := 0
	for n < len(c.queue) && time.Since(c.queue[n].whole.since) > c.patience {
		c.queue[n].whole.settle(errLate, 0)
		n++
	}
	c.shift(n)
}

// shift takes the first n segments out of the queue. mu is held.
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

// publish hands the record to the server before it returns, so that records
// keep the order of their appends, and settles the group when the answer comes.
func (c *committer) publish(group []segment, raw []byte, events int) {
	start := time.Now()
	msg := &nats.Msg{Subject: c.subject, Header: nats.Header{}, Data: appendRecord(c.memory(), raw, events)}
	// A retry after a lost answer is recognised by the id and kept once.
	msg.Header.Set(jetstream.MsgIDHeader, nuid.Next())
	size, deadline := len(raw), group[0].whole.since.Add(c.patience)
	epoch := c.epoch()
	first, err := c.js.PublishMsgAsync(msg)
	soon := time.AfterFunc(slowCommit, func() { c.count(0, 1) })
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		var ack *jetstream.PubAck
		if err == nil {
			if ack, err = await(first, epoch); err == nil {
				// Only now: a client that has no answer may send the record again.
				defer c.keep(msg.Data)
			}
		}
		ack, err = c.retry(context.Background(), msg, ack, err, epoch, deadline)
		if err == nil {
			err = c.accept(place{ack.Sequence, keyOf(0, msg.Data).sum}, ack.Duplicate)
		}
		need := int64(0)
		switch {
		case err == nil:
			c.committed(ack.Sequence, storedSize(msg), sharesOf(group))
		case errors.Is(err, ErrFull):
			need = int64(storedSize(msg))
		}
		if soon.Stop() {
			c.count(-1, 0)
		} else {
			c.count(-1, -1)
		}
		c.metrics.commit(start, events, size, len(msg.Data), err)
		for _, s := range group {
			s.whole.settle(err, need)
		}
	}()
}

// storedSize is about what a record takes of the budget: the server adds a frame.
func storedSize(msg *nats.Msg) int { return len(msg.Data) + recordFrame }

// recordFrame is what the server keeps beside a record's data: a frame, the
// subject, and the message id in its headers.
const recordFrame = 160

// sharesOf is whose the bytes of a record are.
func sharesOf(group []segment) []share {
	shares := make([]share, len(group))
	for i, s := range group {
		shares[i] = share{s.whole.source, len(s.data)}
	}
	return shares
}

// count counts the commits in flight, and those of them that are slow.
func (c *committer) count(inFlight, slow int) {
	c.mu.Lock()
	c.inFlight += inFlight
	c.slow += slow
	c.mu.Unlock()
	c.changed.Signal()
}

// memory gives memory for a record, empty.
func (c *committer) memory() []byte {
	select {
	case b := <-c.spare:
		return b[:0]
	default:
		return nil
	}
}

// keep keeps the memory of a record that nobody uses any more.
func (c *committer) keep(b []byte) {
	select {
	case c.spare <- b:
	default:
	}
}

// accept notes the position of a record before anybody is told that it is kept. A
// position that may be another record's is refused, as sinks may have
// acknowledged it.
func (c *committer) accept(at place, again bool) error {
	err := c.placed(at, again)
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, errGivenTwice) && c.broken == nil {
		c.broken = fmt.Errorf("%w: the server gave out position %d again: it has lost the end of the stream, which the next start of the relay sets right", ErrUnavailable, at.seq)
		if c.failed != nil {
			go c.failed(c.broken)
		}
	}
	if err != nil && c.broken == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return c.broken
}

// brokenBy is why positions cannot be trusted any more, or nil.
func (c *committer) brokenBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// await waits for the server's answer. The connection's async timeout is
// attemptTimeout, so an answer always comes.
func await(ack jetstream.PubAckFuture, epoch *datadir.Epoch) (*jetstream.PubAck, error) {
	select {
	case got := <-ack.Ok():
		return got, nil
	case err := <-ack.Err():
		return nil, err
	case <-epoch.Over():
		return nil, epoch.Ended()
	}
}

func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.changed.Signal()
	c.wg.Wait()
}
