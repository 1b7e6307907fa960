package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/auditrelay/auditrelay/relay"
)

// position says which of the journal's events are in the topic. It is the value of a record whose
// key is the transactional id.
type position struct {
	Version int `json:"version"`
	// Stream names the journal's log.
	Stream string `json:"stream"`
	// Sequence is a record of the journal, Events how many of its events are in the topic, and
	// Checksum its checksum. All records before it are in the topic, as far as they are for it.
	Sequence uint64 `json:"sequence"`
	Events   int    `json:"events"`
	Checksum uint64 `json:"checksum,string"`
	// Epoch is that of the sink's job in a cluster; 0 where there is only one relay.
	Epoch uint64 `json:"epoch"`
}

const positionVersion = 1

// covers reports whether the topic has an event, as far as the position tells.
func (p *position) covers(e *relay.Event) bool {
	return e.Record != nil && (e.Record.Position < p.Sequence || e.Record.Position == p.Sequence && e.Index < p.Events)
}

// keep sends the position as a part of the transaction.
func (o *once) keep(ctx context.Context, s *session, n *numbers, p *position) error {
	if p == nil {
		return nil
	}
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	b, now := &o.body, time.Now().UnixMilli()
	b.begin(0)
	r := record{key: []byte(o.id), value: value}
	b.raw = r.append(b.raw, 0, 0)
	b.end(now, now, 1)
	err = o.sink.send(ctx, &kafka.RawProduceRequest{Addr: s.keeper, Topic: o.topic, Partition: 0}, b, n)
	if err != nil {
		return fmt.Errorf("send the position to topic %s: %w", o.topic, advise(err))
	}
	return nil
}

// recall reads the newest committed position. A session after the first one goes on where the one
// before has read to. The first one looks among the newest records of the partition, and among
// more and more of them while the sink's position is not there: so it takes no longer, and no more
// memory, where compaction has yet to remove the positions of a million transactions.
func (o *once) recall(ctx context.Context, s *session) (*position, error) {
	c := &o.read
	c.topic, c.leader = o.topic, s.keeper
	first, end, err := c.extent(ctx, o.sink.client, kafka.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	if c.next < first || c.next > end { // the topic is another one
		o.learned = false
	}
	for newest := int64(firstLook); ; newest *= 8 {
		if !o.learned {
			c.next, o.newest = max(first, end-newest), nil
		}
		from := c.next
		if err := o.readTo(ctx, end); err != nil {
			at := c.next
			o.learned = false // whatever was wrong: it is read again
			return nil, fmt.Errorf("at offset %d of %d: %w", at, end, err)
		}
		o.learned = o.learned || from == first
		if o.learned {
			return o.newest, nil
		}
	}
}

const (
	// firstLook is how many of the newest offsets are looked at first. A transaction has two.
	firstLook = 1 << 10
	// positionFetch bounds an answer of the broker, in bytes. kafka-go keeps a page of 64 KiB for
	// each batch of an answer, and a batch with a position has some 200 bytes.
	positionFetch = 64 << 10
)

// readTo reads on up to the end that the partition has now, however long a transaction there stays
// open: up to the last stable offset alone, it could miss a position that is committed.
func (o *once) readTo(ctx context.Context, end int64) error {
	for c := &o.read; c.next < end; {
		part, err := c.fetch(ctx, o.sink.transport, positionFetch)
		if err != nil {
			return err
		}
		if err := c.take(part, o.learn); err != nil {
			return err
		}
		if part.LastStableOffset < end && ctx.Err() != nil {
			return fmt.Errorf("a transaction is open at offset %d of %d: %w", part.LastStableOffset, end, ctx.Err())
		}
	}
	return nil
}

// learn takes in a committed record. One without a value, which a person has sent, forgets the
// position. One that cannot be read is no position of this program.
func (o *once) learn(r *protocol.Record) error {
	key, err := readAll(r.Key)
	if err != nil || !bytes.Equal(key, []byte(o.id)) {
		return err
	}
	value, err := readAll(r.Value)
	if err != nil {
		return err
	}
	var p position
	o.newest, o.learned = nil, true
	if value == nil {
		return nil
	}
	if err := json.Unmarshal(value, &p); err != nil {
		o.sink.log.Error("the position in the topic cannot be read, so it is not used: events may be in the topic twice",
			"topic", o.topic, "offset", r.Offset, "error", err)
		return nil
	}
	o.newest = &p
	return nil
}
