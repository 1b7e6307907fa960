package cluster

import (
	"context"
	"fmt"
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
	batchDrafts = 1000
	batchBytes  = 4 << 20
)

// batchesOf divides drafts into batches.
func batchesOf(drafts []store.Draft) (all [][]store.Draft) {
	start, size := 0, 0
	for i := range drafts {
		bytes := headSize + len(drafts[i].Key) + len(drafts[i].Data)
		if i > start && (i-start == batchDrafts || size+bytes > batchBytes) {
			all, start, size = append(all, drafts[start:i]), i, 0
		}
		size += bytes
	}
	return append(all, drafts[start:])
}

// message makes the message of a draft. Only the last one of an append has an id: the
// server stores it after all others, so an append that it refuses as a duplicate is there
// whole, and one that was cut off by a failing disk is stored again.
func (a *attempt) message(i int, at int64) *nats.Msg {
	f := frame{nonce: a.nonce + uint64(i), time: at, draft: a.drafts[i]}
	if a.times != nil {
		f.time = a.times[i].UnixNano()
	}
	m := &nats.Msg{Subject: a.log.stream, Header: nats.Header{}, Data: f.encode(a.log.stream)}
	if i == 0 && a.after != nil {
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(*a.after, 10))
	}
	if i == len(a.drafts)-1 {
		m.Header.Set(jetstream.MsgIDHeader, strconv.FormatUint(a.nonce, 16))
	}
	return m
}

// batch publishes several messages, which the server stores together. A server without replicas
// keeps them in a folder of their own until then, which costs it 4 ms and more, however few they
// are; with replicas it keeps them in memory. Messages that are published one after the other
// would cost a sync each, and could be stored in part and in another order.
func (a *attempt) batch(ctx context.Context) (last uint64, err error) {
	nc, inbox := a.log.store.js.Conn(), a.log.store.js.Conn().NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answers.Unsubscribe() }() // on an error it ends with the connection
	if err := a.publishBatch(nc, inbox); err != nil {
		return 0, err
	}
	answer, err := answers.NextMsgWithContext(ctx)
	if err != nil {
		return 0, err
	}
	seq, count, err := readAck(answer)
	if err == nil && count != len(a.drafts) {
		err = fmt.Errorf("the server stored %d of %d messages of a batch", count, len(a.drafts))
	}
	return seq, err
}

func (a *attempt) publishBatch(nc *nats.Conn, inbox string) error {
	a.log.sending.Lock()
	defer a.log.sending.Unlock()
	at, id := a.log.now(), nuid.Next()
	for i := range a.drafts {
		m := a.message(i, at)
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
		if i == len(a.drafts)-1 {
			m.Header.Set(headerBatchCommit, "1")
			m.Reply = inbox
		}
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
	}
	return nil
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
