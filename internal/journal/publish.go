package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/diskbudget"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/losses"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// sent is a record on its way to the disk.
type sent struct {
	msg      *nats.Msg
	group    []segment
	events   int
	epoch    *datadir.Epoch // the server's
	start    time.Time
	deadline time.Time // of the last attempt
	turns    int       // how often the stream had gone back
	record   uint64    // the position in the stream, once it is durable
}

// publish hands the group's record to the server, in the order of the appends, and returns.
// The answer settles the group later.
func (c *committer) publish(group []segment, raw []byte, events int) {
	s := &sent{group: group, events: events, epoch: c.epoch(), start: time.Now(), deadline: group[0].whole.since.Add(c.patience)}
	if c.turns != nil {
		s.turns = c.turns()
	}
	s.msg = &nats.Msg{Subject: c.subject, Header: nats.Header{}, Data: record.Append(c.memory(), raw, events)}
	// By the id, the server recognises a retry after a lost answer.
	s.msg.Header.Set(jetstream.MsgIDHeader, nuid.Next())
	size := len(raw)
	answer, err := c.js.PublishMsgAsync(s.msg)
	slow := time.AfterFunc(slowCommit, func() { c.count(0, 1) })
	c.wg.Go(func() {
		err := c.confirm(s, answer, err)
		if slow.Stop() {
			c.count(-1, 0)
		} else {
			c.count(-1, -1)
		}
		c.metrics.commit(s.start, events, size, len(s.msg.Data), err)
		need := int64(0)
		if errors.Is(err, ErrFull) {
			need = s.stored()
		}
		for _, segment := range group {
			segment.whole.settle(s.record, err, need)
		}
	})
}

// confirm waits until the record is durable, and accounts for it.
func (c *committer) confirm(s *sent, answer jetstream.PubAckFuture, err error) error {
	var ack *jetstream.PubAck
	sealed := c.seal(s)
	if err == nil {
		if ack, err = streamserver.Await(answer, s.epoch); err == nil {
			// Only now: without an answer the record may be sent again.
			defer c.keep(s.msg.Data)
		}
	}
	if ack, err = c.retry(s, ack, err); err == nil {
		err = c.accept(history.Place{Seq: ack.Sequence, Sum: record.Checksum(s.msg.Data)}, ack.Duplicate)
	}
	if err != nil {
		return err
	}
	s.record = ack.Sequence
	c.committed(ack.Sequence, s.events, int(s.stored()), s.shares())
	if c.sealed != nil {
		sealed.Position, sealed.Turns = ack.Sequence, s.turns
		c.sealed(sealed)
	}
	c.expect(len(s.group), time.Since(s.start))
	return nil
}

// retry publishes the record again after a passing failure, with the same id, and makes
// room for it once. The record then stands behind those committed meanwhile.
//
// After a longer outage the sender is told to push again, under another id: if the record
// was kept after all, its events stand twice, with the same event ids.
func (c *committer) retry(s *sent, ack *jetstream.PubAck, err error) (*jetstream.PubAck, error) {
	ctx := context.Background()
	ack, err = streamserver.Republish(ctx, c.js, s.msg, ack, err, s.epoch, s.deadline)
	if streamserver.IsFull(err) && c.waitForRoom(ctx, s) == nil {
		ack, err = streamserver.Publish(ctx, c.js, s.msg)
		ack, err = streamserver.Republish(ctx, c.js, s.msg, ack, err, s.epoch, s.deadline)
	}
	switch {
	case err == nil:
		return ack, nil
	case streamserver.IsFull(err):
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// waitForRoom waits until a trim of delivered records has made room for the record.
func (c *committer) waitForRoom(ctx context.Context, s *sent) error {
	ctx, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	return c.makeRoom(ctx, s.stored())
}

// accept notes a record's position before any sender is told of its success. It refuses a
// position of possibly another record, as sinks may have acknowledged the other one.
func (c *committer) accept(at history.Place, again bool) error {
	err := c.place(at, again)
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, losses.ErrGivenTwice) && c.broken == nil {
		c.broken = fmt.Errorf("%w: the server gave out position %d again: it has lost the end of the stream, which the next start of the relay sets right", ErrUnavailable, at.Seq)
		if c.failed != nil {
			go c.failed(c.broken)
		}
	}
	if err != nil && c.broken == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return c.broken
}

// brokenBy says why positions can no longer be trusted, or is nil.
func (c *committer) brokenBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// recordFrame is the server's addition to a record's data: a frame, the subject, and the
// message id in its headers.
const recordFrame = 160

// stored is about how many bytes of the budget the record takes.
func (s *sent) stored() int64 { return int64(len(s.msg.Data) + recordFrame) }

// shares divides the record among its sources.
func (s *sent) shares() []diskbudget.Share {
	shares := make([]diskbudget.Share, len(s.group))
	for i, segment := range s.group {
		shares[i] = diskbudget.Share{Source: segment.whole.source, Bytes: len(segment.data)}
	}
	return shares
}

// memory gives an empty buffer for a record.
func (c *committer) memory() []byte {
	select {
	case b := <-c.spare:
		return b[:0]
	default:
		return nil
	}
}

// keep takes back a buffer.
func (c *committer) keep(b []byte) {
	select {
	case c.spare <- b:
	default:
	}
}
