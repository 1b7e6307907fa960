package cluster

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Headers of a message in an atomic batch (nats-server 2.12 and later).
const (
	headerBatch         = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// Bounds of one atomic batch. The server takes 1,000 messages at most, and has all of them
// in memory, or twice on disk, until it commits.
const (
	batchRecords = 1000
	batchBytes   = 4 << 20
)

// batchesOf divides records into batches.
func batchesOf(records []store.Record) (all [][]store.Record) {
	start, size := 0, 0
	for i := range records {
		bytes := headSize + len(records[i].Key) + len(records[i].Data)
		if i > start && (i-start == batchRecords || size+bytes > batchBytes) {
			all, start, size = append(all, records[start:i]), i, 0
		}
		size += bytes
	}
	return append(all, records[start:])
}

// message makes the message of a record. Only the last one of an append has an id: the
// server stores it after all others, so an append that it refuses as a duplicate is there
// whole, and one that was cut off by a failing disk is stored again.
func (a *attempt) message(i int, now int64, batch string) *nats.Msg {
	f := frame{nonce: a.nonce + uint64(i), time: now, draft: a.records[i].Draft}
	if at := a.records[i].Time; !at.IsZero() {
		f.time = at.UnixNano()
	}
	m := &nats.Msg{Subject: a.log.stream, Header: nats.Header{}, Data: f.encode(a.log.stream)}
	last := len(a.records) - 1
	if last > 0 {
		m.Header.Set(headerBatch, batch)
		m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
	}
	if i == 0 && a.after != nil {
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(*a.after, 10))
	}
	if i == last {
		m.Header.Set(jetstream.MsgIDHeader, strconv.FormatUint(a.nonce, 16))
		a.frame = m.Data
	}
	if i == last && last > 0 {
		m.Header.Set(headerBatchCommit, "1")
	}
	return m
}

// send hands the messages to the connection. The server stores several of them together. One
// without replicas keeps them in a folder of their own until then, which costs it 4 ms and more,
// however few they are; with replicas it keeps them in memory. Messages that are published one after
// the other would cost a sync each, and could be stored in part and in another order. The answer to
// the last one is that to all.
func (a *attempt) send() (jetstream.PubAckFuture, error) {
	js, last, batch := a.log.store.js, len(a.records)-1, ""
	if last > 0 {
		batch = nuid.Next()
	}
	a.log.sending.Lock()
	defer a.log.sending.Unlock()
	now := a.log.now()
	for i := range last {
		if err := js.Conn().PublishMsg(a.message(i, now, batch)); err != nil {
			return nil, err
		}
	}
	return js.PublishMsgAsync(a.message(last, now, batch))
}

// stored asks where the last message of a batch stands that an earlier try stored: the
// server answers a known id with its sequence. It cannot store the message now, since it
// compares the id of the stream's last message after that, and no message has the wanted one.
func (a *attempt) stored(ctx context.Context) (uint64, error) {
	m := &nats.Msg{Subject: a.log.stream, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgIDHeader, strconv.FormatUint(a.nonce, 16))
	m.Header.Set(jetstream.ExpectedLastMsgIDHeader, "none")
	return a.log.store.publish(ctx, m)
}
