package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// Headers of a message in an atomic batch (nats-server 2.12 and later).
const (
	headerBatch         = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// Bounds of one atomic batch. The server takes 1,000 messages at most, and has all of
// them in memory, or twice on disk, until it commits.
const (
	batchLetters = 1000
	batchBytes   = 4 << 20
)

// The server's refusals of batches (errors.json).
const (
	codeBatchDisabled  jetstream.ErrorCode = 10174
	codeBatchTooLarge  jetstream.ErrorCode = 10199
	codeBatchDuplicate jetstream.ErrorCode = 10201
)

// errNoBatches means a server without atomic batches: it stored a batch's message alone.
var errNoBatches = errors.New("the server knows no atomic batches")

// keep returns when the letters are on disk, with a handful of syncs if the server can.
//
// If the answer to a batch is lost, keep publishes it again, until patience. The last
// message has an id, and the server stores it after all others: so a batch refused as a
// duplicate is there whole, and one cut off by a failing disk is stored anew. A crash in
// the middle may leave a part of it; the next delivery stores that part a second time.
func (s *Store) keep(ctx context.Context, letters []*nats.Msg) error {
	if len(letters) == 1 || !s.stream.CachedInfo().Config.AllowAtomicPublish {
		return s.keepEach(ctx, letters)
	}
	letters[len(letters)-1].Header.Set(jetstream.MsgIDHeader, nuid.Next())
	epoch, deadline := s.conn.Epoch(), time.Now().Add(patience)
	for {
		err := s.publishBatch(ctx, letters)
		ended := epoch.Ended()
		switch {
		case err == nil || streams.HasCode(err, codeBatchDuplicate) && ended == nil:
			return nil
		case errors.Is(err, errNoBatches) || streams.HasCode(err, codeBatchDisabled, codeBatchTooLarge):
			return s.keepEach(ctx, letters)
		case ended != nil:
			return ended
		case !streamserver.MayPass(err) || time.Now().Add(streamserver.RetryPause).After(deadline) || pause.For(ctx, streamserver.RetryPause) != nil:
			return err
		}
	}
}

// publishBatch makes one attempt. The server answers the first message, with nothing,
// and the last one.
func (s *Store) publishBatch(ctx context.Context, letters []*nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, streamserver.PublishTimeout)
	defer cancel()
	id, last, nc := nuid.Next(), len(letters)-1, s.conn.JetStream.Conn()
	for i, m := range letters {
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
	}
	letters[last].Header.Set(headerBatchCommit, "1")
	first, err := nc.RequestMsgWithContext(ctx, letters[0])
	if err != nil {
		return fmt.Errorf("begin a batch: %w", err)
	}
	if len(first.Data) > 0 {
		_, err := batchAck(first.Data)
		return errors.Join(err, errNoBatches)
	}
	for _, m := range letters[1:last] {
		if err := nc.PublishMsg(m); err != nil {
			return fmt.Errorf("publish a batch: %w", err)
		}
	}
	answer, err := nc.RequestMsgWithContext(ctx, letters[last])
	if err != nil {
		return fmt.Errorf("commit a batch: %w", err)
	}
	count, err := batchAck(answer.Data)
	if err == nil && count != len(letters) {
		err = errNoBatches
	}
	return err
}

// batchAck reads an answer: how many messages were committed, or the server's refusal.
func batchAck(data []byte) (count int, _ error) {
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("read the answer to a batch: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	return ack.Count, nil
}

// keepEach publishes each letter by itself, without waiting for the one before, and
// returns when the server has answered for all. Each has an id of this very call, so a
// retry stores it once; the same event may be refused again after its letter was removed.
func (s *Store) keepEach(ctx context.Context, letters []*nats.Msg) error {
	epoch, deadline := s.conn.Epoch(), time.Now().Add(patience)
	acks, errs := make([]jetstream.PubAckFuture, len(letters)), make([]error, len(letters))
	for i, m := range letters {
		for _, name := range []string{headerBatch, headerBatchSequence, headerBatchCommit} {
			m.Header.Del(name)
		}
		m.Header.Set(jetstream.MsgIDHeader, nuid.Next())
		acks[i], errs[i] = s.conn.JetStream.PublishMsgAsync(m)
	}
	var first error
	for i, m := range letters {
		err, ack := errs[i], (*jetstream.PubAck)(nil)
		if err == nil {
			ack, err = streamserver.Await(acks[i], epoch)
		}
		if _, err = streamserver.Republish(ctx, s.conn.JetStream, m, ack, err, epoch, deadline); err != nil && first == nil {
			first = err
		}
	}
	return first
}
