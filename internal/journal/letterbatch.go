package journal

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
)

// Headers of a message that belongs to an atomic batch (nats-server 2.12 and later).
const (
	headerBatch         = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// What one atomic batch holds. The server takes 1,000 messages at most, and has all
// of them in memory, or twice on disk, until it commits.
const (
	lettersAtOnce     = 1000
	letterBytesAtOnce = 4 << 20
)

// The server's refusals of batches (errors.json).
const (
	codeBatchDisabled  jetstream.ErrorCode = 10174
	codeBatchTooLarge  jetstream.ErrorCode = 10199
	codeBatchDuplicate jetstream.ErrorCode = 10201
)

// errNoBatches says that the server took a batch's message for a message by itself.
var errNoBatches = errors.New("the server knows no atomic batches")

// keepLetters returns when the letters are on disk. They are stored with a handful of
// syncs, however many they are, where the server can.
//
// A batch whose answer was lost is published again, until commitTimeout. Its last
// message has an id: the server stores it after all others, so a batch that it refuses
// as a duplicate is there whole, and one that a failing disk cut off is stored anew. A
// crash in the middle may leave a part of it; the delivery is then tried again, and
// that part stands there twice.
func (j *Journal) keepLetters(ctx context.Context, letters []*nats.Msg) error {
	if len(letters) == 1 || !j.dead.CachedInfo().Config.AllowAtomicPublish {
		return j.keepEach(ctx, letters)
	}
	letters[len(letters)-1].Header.Set(jetstream.MsgIDHeader, nuid.Next())
	epoch, deadline := j.conn.Epoch(), time.Now().Add(commitTimeout)
	for {
		err := j.publishBatch(ctx, letters)
		switch {
		case err == nil || streams.HasCode(err, codeBatchDuplicate) && epoch.Ended() == nil:
			return nil
		case errors.Is(err, errNoBatches) || streams.HasCode(err, codeBatchDisabled, codeBatchTooLarge):
			return j.keepEach(ctx, letters)
		}
		if !mayPass(err) || epoch.Ended() != nil || time.Now().Add(retryPause).After(deadline) || pause.For(ctx, retryPause) != nil {
			_, err = j.commits.retry(ctx, nil, nil, err, epoch, time.Time{}) // it only says what kind of error this is
			return err
		}
	}
}

// publishBatch makes one attempt. The server answers to the first message, with
// nothing, and to the last; the others are not answered.
func (j *Journal) publishBatch(ctx context.Context, letters []*nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	id, last := nuid.Next(), len(letters)-1
	for i, m := range letters {
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
	}
	letters[last].Header.Set(headerBatchCommit, "1")
	first, err := j.conn.JetStream.Conn().RequestMsgWithContext(ctx, letters[0])
	if err != nil {
		return fmt.Errorf("begin a batch: %w", err)
	}
	if len(first.Data) > 0 {
		_, err := batchAck(first.Data)
		return errors.Join(err, errNoBatches)
	}
	for _, m := range letters[1:last] {
		if err := j.conn.JetStream.Conn().PublishMsg(m); err != nil {
			return fmt.Errorf("publish a batch: %w", err)
		}
	}
	answer, err := j.conn.JetStream.Conn().RequestMsgWithContext(ctx, letters[last])
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

// keepEach publishes letters one by one, all at once on their way, until the server
// has answered for each, as an append does: with one id, so that a letter stands there
// once. The id is of this very call: the same event may be refused again after its
// letter was removed.
func (j *Journal) keepEach(ctx context.Context, letters []*nats.Msg) error {
	epoch, deadline := j.conn.Epoch(), time.Now().Add(commitTimeout)
	acks, errs := make([]jetstream.PubAckFuture, len(letters)), make([]error, len(letters))
	for i, m := range letters {
		for _, name := range []string{headerBatch, headerBatchSequence, headerBatchCommit} {
			m.Header.Del(name)
		}
		m.Header.Set(jetstream.MsgIDHeader, nuid.Next())
		acks[i], errs[i] = j.conn.JetStream.PublishMsgAsync(m)
	}
	var first error
	for i, m := range letters {
		err, ack := errs[i], (*jetstream.PubAck)(nil)
		if err == nil {
			ack, err = await(acks[i], epoch)
		}
		if _, err = j.commits.retry(ctx, m, ack, err, epoch, deadline); err != nil && first == nil {
			first = err
		}
	}
	return first
}
