package kafka

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

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

// readBack is how far the position's partition was read.
type readBack struct {
	next   int64     // the offset to go on from
	newest *position // the newest committed one before it
}

// recall reads the newest committed position. It reads up to the end that the partition has now,
// however long a transaction there stays open: up to the last stable offset alone, it could
// miss one that is committed.
func (o *once) recall(ctx context.Context, s *session) (*position, error) {
	first, end, err := o.extent(ctx, s)
	if err != nil {
		return nil, err
	}
	if o.read.next < first || o.read.next > end { // or the topic is another one
		o.read = readBack{next: first}
	}
	for o.read.next < end {
		part, err := o.fetch(ctx, s.keeper)
		if err != nil {
			return nil, fmt.Errorf("at offset %d of %d: %w", o.read.next, end, err)
		}
		if err := o.take(part); err != nil {
			return nil, err
		}
		if part.LastStableOffset < end && ctx.Err() != nil {
			return nil, fmt.Errorf("a transaction is open at offset %d of %d: %w", part.LastStableOffset, end, ctx.Err())
		}
	}
	return o.read.newest, nil
}

// extent returns where the position's partition begins and ends, open transactions included.
func (o *once) extent(ctx context.Context, s *session) (first, end int64, err error) {
	ask := func(offset int64) (found kafka.PartitionOffsets, err error) {
		res, err := o.sink.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Addr: s.keeper, Topics: map[string][]kafka.OffsetRequest{o.topic: {{Partition: 0, Timestamp: offset}}},
		})
		if err != nil {
			return found, bare(err)
		}
		if len(res.Topics[o.topic]) != 1 {
			return found, errors.New("the broker's answer leaves out the partition")
		}
		found = res.Topics[o.topic][0]
		return found, found.Error
	}
	from, err := ask(kafka.FirstOffset)
	if err != nil {
		return 0, 0, err
	}
	to, err := ask(kafka.LastOffset)
	return from.FirstOffset, to.LastOffset, err
}

const (
	positionFetch = 4 << 20
	positionWait  = 500 * time.Millisecond
)

// fetch asks for what is committed or aborted from the next offset on.
func (o *once) fetch(ctx context.Context, leader net.Addr) (*fetch.ResponsePartition, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := o.sink.transport.RoundTrip(ctx, leader, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(positionWait.Milliseconds()), MinBytes: 1, MaxBytes: positionFetch,
		IsolationLevel: int8(kafka.ReadCommitted), SessionID: -1, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: o.topic, Partitions: []fetch.RequestPartition{{
			CurrentLeaderEpoch: -1, FetchOffset: o.read.next, LogStartOffset: -1, PartitionMaxBytes: positionFetch,
		}}}},
	})
	if err != nil {
		return nil, err
	}
	res, ok := answer.(*fetch.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, errors.New("the broker's answer leaves out the partition")
	}
	part := &res.Topics[0].Partitions[0]
	if code := cmp.Or(part.ErrorCode, res.ErrorCode); code != 0 {
		o.read = readBack{} // whatever was wrong: all of it is read again
		return nil, kafka.Error(code)
	}
	return part, nil
}

// Types of control records.
const controlAbort = 0

// take reads an answer, and moves the next offset. The broker names the producers whose
// transactions were aborted, and from which offset on; the mark of the abort ends that.
func (o *once) take(part *fetch.ResponsePartition) error {
	stream, ok := part.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		return nil // nothing is there yet
	}
	slices.SortFunc(part.AbortedTransactions, func(a, b fetch.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	before, ahead, aborted := o.read.next, part.AbortedTransactions, map[int64]bool{}
	for _, batch := range stream.Records {
		at, ok := batch.(interface{ Offset() int64 })
		if !ok {
			return fmt.Errorf("a batch is a %T", batch)
		}
		for len(ahead) > 0 && ahead[0].FirstOffset <= at.Offset() {
			aborted[ahead[0].ProducerID] = true
			ahead = ahead[1:]
		}
		skip := func(*protocol.Record) error { return nil }
		read := o.learn
		switch b := batch.(type) {
		case *protocol.ControlBatch:
			read = func(r *protocol.Record) error {
				mark, err := protocol.ReadControlRecord(r)
				if err == nil && mark.Type == controlAbort {
					delete(aborted, b.ProducerID)
				}
				return err
			}
		case *protocol.RecordBatch:
			if b.Attributes.Transactional() && aborted[b.ProducerID] {
				read = skip
			}
		}
		o.read.next = max(o.read.next, at.Offset()+1)
		if err := o.each(batch, before, read); err != nil {
			return err
		}
	}
	if o.read.next == before && len(stream.Records) > 0 {
		o.read.next++ // compaction has emptied the batch that stands here
	}
	return nil
}

// each calls read with the records of a batch, from an offset on.
func (o *once) each(batch protocol.RecordReader, from int64, read func(*protocol.Record) error) error {
	for {
		r, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.Offset < from {
			continue // the answer begins with the batch that has the offset
		}
		if err := read(r); err != nil {
			return err
		}
		o.read.next = max(o.read.next, r.Offset+1)
	}
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
	o.read.newest = nil
	if value == nil {
		return nil
	}
	if err := json.Unmarshal(value, &p); err != nil {
		o.sink.log.Error("the position in the topic cannot be read, so it is not used: events may be in the topic twice",
			"topic", o.topic, "offset", r.Offset, "error", err)
		return nil
	}
	o.read.newest = &p
	return nil
}

func readAll(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer func() { _ = b.Close() }()
	return protocol.ReadAll(b)
}
