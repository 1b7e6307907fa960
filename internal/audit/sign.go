package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streams"
)

// keep signs a checkpoint when the tree has grown, and then not again for the time
// of every; and it opens the trail again where it cannot be used. It ends with ctx.
func (t *Trail) keep(ctx context.Context, every time.Duration) {
	defer close(t.done)
	failing := false
	again := time.NewTicker(retryPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.grew:
		case <-again.C:
		}
		err := t.sign(ctx)
		if err != nil && ctx.Err() == nil && !failing && !errors.Is(err, ErrUnavailable) { // logged already
			t.log.Error("signing the audit trail failed; it is tried again", "error", err)
		}
		if failing && err == nil {
			t.log.Info("the audit trail is signed again")
		}
		failing = err != nil && !errors.Is(err, ErrUnavailable)
		if pause.For(ctx, every) != nil {
			return
		}
	}
}

// sign signs the tree as it is, where it is larger than the newest checkpoint.
func (t *Trail) sign(ctx context.Context) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	for silent := 0; ; {
		if err := t.ready(ctx); err != nil {
			return err
		}
		if t.signed.n == t.tree.n {
			return t.keepPin()
		}
		before := t.signed.n
		err := t.signNext(ctx)
		if err != nil {
			silent++
		}
		if t.signed.n == before && (silent == publishAttempts || ctx.Err() != nil) {
			t.grown() // the loop tries again
			return fmt.Errorf("keep checkpoint: %w", err)
		}
	}
}

// signNext signs and keeps one checkpoint. It is kept behind the newest known one, or
// refused; then the ones between are read and adopted. A crash before it is kept leaves
// the entries unsigned until the next start; one behind it leaves an older pin, also
// part of the kept history. Entries are durable before they are signed, and a checkpoint
// before it is pinned: else a power cut could look like a truncation.
func (t *Trail) signNext(ctx context.Context) error {
	if err := t.settle(t.entriesName()); err != nil {
		return err
	}
	leaves := t.pending[:min(len(t.pending), maxLeaves)]
	next := t.signed.grown(leaves...)
	text, err := signCheckpoint(t.key, next)
	if err != nil {
		return err
	}
	data, err := encodeKept(t.key, text, t.signed, leaves)
	if err != nil {
		return err
	}
	if err := t.pinFirst(text); err != nil {
		return err
	}
	msg := nats.NewMsg(t.checkpointSubject())
	msg.Data = data
	ack, err := t.send(ctx, msg, nuid.Next(), t.keptSeq)
	if streams.IsWrongSequence(err) {
		return t.adopt(ctx)
	}
	if err != nil {
		return fmt.Errorf("publish checkpoint: %w", err)
	}
	t.signedUpTo(next, text, ack.Sequence)
	return t.keepPin()
}

// signedUpTo makes next the newest checkpoint's tree.
func (t *Trail) signedUpTo(next tree, text []byte, seq uint64) {
	t.pending = t.pending[next.n-t.signed.n:]
	t.signed, t.keptSeq, t.newestNote, t.pinDue = next, seq, text, true
	t.note(t.checkpointsName(), seq)
	t.metrics.checkpoints.Inc()
	t.metrics.signed.Set(float64(t.base + next.n))
}

// adopt takes up the checkpoints kept since: by another relay, or by this one after a
// lost acknowledgement. One in contradiction to the entries, or of another key or
// generation, has the trail read back.
func (t *Trail) adopt(ctx context.Context) error {
	for {
		msg, err := t.checkpoints.GetMsg(ctx, t.keptSeq+1)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read checkpoint: %w", err)
		}
		c, err := decodeKept(t.key, msg.Data, msg.Sequence)
		if err != nil {
			return t.damage("checkpoint %d: %w", msg.Sequence, err)
		}
		if c.public != t.key.public {
			return t.damage("checkpoint %d is signed with the key %s", c.seq, c.public)
		}
		if c.size > t.tree.n {
			if _, err := t.catchUp(ctx, nil); err != nil {
				return err
			}
		}
		if c.size > t.tree.n || c.size < t.signed.n || t.signed.grown(t.pending[:c.size-t.signed.n]...).root() != c.root {
			return t.damage("checkpoint %d, of size %d, is of other entries", c.seq, c.size)
		}
		t.signedUpTo(t.signed.grown(t.pending[:c.size-t.signed.n]...), []byte(c.text), c.seq)
	}
}
