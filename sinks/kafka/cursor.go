package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// cursor reads the committed records of a partition, one answer of its leader after the other.
type cursor struct {
	topic     string
	partition int
	leader    net.Addr
	next      int64 // the offset to go on from
}

// extent returns where the partition begins and ends: with its open transactions, or, for
// kafka.ReadCommitted, before the first of them.
func (c *cursor) extent(ctx context.Context, client *kafka.Client, level kafka.IsolationLevel) (first, end int64, err error) {
	ask := func(offset int64) (found kafka.PartitionOffsets, err error) {
		res, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Addr: c.leader, IsolationLevel: level,
			Topics: map[string][]kafka.OffsetRequest{c.topic: {{Partition: c.partition, Timestamp: offset}}},
		})
		if err != nil {
			return found, bare(err)
		}
		if len(res.Topics[c.topic]) != 1 {
			return found, errNotInAnswer
		}
		found = res.Topics[c.topic][0]
		return found, found.Error
	}
	from, err := ask(kafka.FirstOffset)
	if err != nil {
		return 0, 0, err
	}
	to, err := ask(kafka.LastOffset)
	return from.FirstOffset, to.LastOffset, err
}

var errNotInAnswer = errors.New("the broker's answer leaves out the partition")

// fetchWait is how long the leader waits for a record.
const fetchWait = 500 * time.Millisecond

// fetch asks for what is committed or aborted from the next offset on: at most this many bytes, or
// one larger batch.
func (c *cursor) fetch(ctx context.Context, t *transport, most int) (*fetch.ResponsePartition, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := t.RoundTrip(ctx, c.leader, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(fetchWait.Milliseconds()), MinBytes: 1, MaxBytes: maxAnswer,
		IsolationLevel: int8(kafka.ReadCommitted), SessionID: -1, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: c.topic, Partitions: []fetch.RequestPartition{{
			Partition: int32(c.partition), CurrentLeaderEpoch: -1, FetchOffset: c.next, LogStartOffset: -1, PartitionMaxBytes: int32(most), //nolint:gosec // a few megabytes
		}}}},
	})
	if err != nil {
		return nil, err
	}
	res, ok := answer.(*fetch.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, errNotInAnswer
	}
	part := &res.Topics[0].Partitions[0]
	if code := cmp.Or(part.ErrorCode, res.ErrorCode); code != 0 {
		return nil, kafka.Error(code)
	}
	return part, nil
}

// Types of control records.
const controlAbort = 0

// take reads an answer, and moves the next offset past what it has read. The broker names the
// producers whose transactions were aborted, and from which offset on; the mark of the abort ends
// that. An error of read ends the reading.
func (c *cursor) take(part *fetch.ResponsePartition, read func(*protocol.Record) error) error {
	stream, ok := part.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		return nil // nothing is there yet
	}
	slices.SortFunc(part.AbortedTransactions, func(a, b fetch.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	before, ahead, aborted := c.next, part.AbortedTransactions, map[int64]bool{}
	for _, batch := range stream.Records {
		at, ok := batch.(interface{ Offset() int64 })
		if !ok {
			return fmt.Errorf("a batch is a %T", batch)
		}
		for len(ahead) > 0 && ahead[0].FirstOffset <= at.Offset() {
			aborted[ahead[0].ProducerID] = true
			ahead = ahead[1:]
		}
		read := read
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
				read = func(*protocol.Record) error { return nil }
			}
		}
		c.next = max(c.next, at.Offset())
		if err := c.each(batch, before, read); err != nil {
			return err
		}
		c.next = max(c.next, at.Offset()+1)
	}
	if c.next == before && len(stream.Records) > 0 {
		c.next++ // compaction has emptied the batch that stands here
	}
	return nil
}

// each calls read with the records of a batch, from an offset on.
func (c *cursor) each(batch protocol.RecordReader, from int64, read func(*protocol.Record) error) error {
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
		c.next = max(c.next, r.Offset+1)
	}
}

func readAll(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer func() { _ = b.Close() }()
	return protocol.ReadAll(b)
}
