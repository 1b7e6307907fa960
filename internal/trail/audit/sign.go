package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// keep signs a checkpoint when the tree has grown, and then not again for the time
// of every; it signs the heartbeats, and opens the trail again where it cannot be used.
// It ends with ctx.
func (t *Trail) keep(ctx context.Context, every time.Duration) {
	defer close(t.done)
	failing := false
	whileRunning(ctx, t.grew, every, func() {
		err := t.Sign(ctx)
		if err != nil && ctx.Err() == nil && !failing && !errors.Is(err, ErrUnavailable) { // logged already
			t.log.Error("signing the audit trail failed; it is tried again", "error", err)
		}
		if failing && err == nil {
			t.log.Info("the audit trail is signed again")
		}
		failing = err != nil && !errors.Is(err, ErrUnavailable)
	})
}

// whileRunning calls look after each growth and each retryPause, but not before every has passed
// since the last call.
func whileRunning(ctx context.Context, grew <-chan struct{}, every time.Duration, look func()) {
	again := time.NewTicker(retryPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-grew:
		case <-again.C:
		}
		look()
		if retry.Sleep(ctx, every) != nil {
			return
		}
	}
}

// Sign signs the tree as it is, where it is larger than the newest checkpoint or a heartbeat is
// due. A crash before leaves the entries that no checkpoint covers to the next start.
func (t *Trail) Sign(ctx context.Context) error { return t.signAll(ctx, false) }

// signAll is Sign; with stop it signs the end of the heartbeats.
func (t *Trail) signAll(ctx context.Context, stop bool) error {
	for failures := 0; ; {
		d, err := t.draft(ctx, stop)
		if err != nil || d == nil {
			return err
		}
		// Without the turn: the key may be far away, and appends go on meanwhile.
		d.at = time.Now()
		if d.text, err = signCheckpoint(ctx, d.key, d.next, d.promise, d.at); err != nil {
			return err
		}
		if err = t.keepDraft(ctx, d); err == nil {
			continue
		}
		if failures++; failures == appendAttempts || ctx.Err() != nil {
			t.nudge() // the loop tries again
			return fmt.Errorf("keep checkpoint: %w", err)
		}
	}
}

// signer has the key and the tree of the newest generation. It belongs to whoever has the
// trail's turn.
type signer struct {
	key        keyPair     // of the newest generation
	base       int64       // the newest generation's first index
	tree       tree        // of this generation, over every entry read or appended
	signed     tree        // at the newest checkpoint
	pending    []tlog.Hash // leaves between signed and tree
	keptSeq    uint64      // the newest checkpoint's position
	beat       beat        // of this process
	newestNote []byte      // the newest checkpoint's signed note; nil where it is not known
	pinDue     bool        // it is not next to the key yet
	marked     bool        // the key is known to have signed
}

// draft is a checkpoint to be signed and kept.
type draft struct {
	key     keyPair
	before  tree
	leaves  []tlog.Hash
	next    tree   // before with leaves
	after   uint64 // the position of the checkpoint before it
	promise string // its extension line
	at      time.Time
	text    []byte // the signed note
	stop    bool
}

// draft drafts the next checkpoint, nil where none is due.
func (t *Trail) draft(ctx context.Context, stop bool) (*draft, error) {
	if err := t.use(ctx); err != nil {
		return nil, err
	}
	defer t.unlock()
	return t.draftNext(stop)
}

// draftNext is draft for who has the turn of a usable trail.
func (t *Trail) draftNext(stop bool) (*draft, error) {
	if t.signed.Len() == t.tree.Len() && (t.tree.Len() == 0 || !t.beat.due(stop)) {
		return nil, t.keepPin()
	}
	leaves := t.pending[:min(len(t.pending), maxLeaves)]
	return &draft{
		key: t.key, before: t.signed, leaves: leaves, next: t.signed.With(leaves...), after: t.keptSeq,
		promise: t.beat.promise(stop), stop: stop,
	}, nil
}

// keepDraft keeps a signed checkpoint after the newest known one. Where it is refused,
// the ones between are read and adopted. A crash before it is kept leaves the entries
// unsigned until the next start; one after it leaves an older pin, also part of the
// kept history.
func (t *Trail) keepDraft(ctx context.Context, d *draft) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	return t.keepSigned(ctx, d)
}

// keepSigned is keepDraft for who has the turn.
func (t *Trail) keepSigned(ctx context.Context, d *draft) error {
	if t.keptSeq != d.after || t.key.public != d.key.public || t.signed.Len() != d.before.Len() || t.tree.Len() < d.next.Len() {
		return nil // it was read back meanwhile: the next draft is of the trail as it is
	}
	kept, err := encodeKept(d.key, d.text, d.at, d.before, d.leaves)
	if err != nil {
		return err
	}
	if err := t.pinFirst(d.text); err != nil {
		return err
	}
	pos, err := t.checkpoints.AppendAt(ctx, store.Pos(t.keptSeq), kept)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnknown) {
		return t.adoptAfter(ctx, d.after, err)
	}
	if err != nil {
		return fmt.Errorf("append checkpoint: %w", err)
	}
	t.signedUpTo(d.next, d.text, uint64(pos))
	t.beat.signed(d.stop)
	t.offer()
	return t.keepPin()
}

// adoptAfter adopts the checkpoints after a position, as one of ours was refused, or nobody
// knows whether it was stored.
func (t *Trail) adoptAfter(ctx context.Context, after uint64, cause error) error {
	if err := t.adopt(ctx); err != nil {
		return err
	}
	switch {
	case t.keptSeq > after:
		return nil
	case errors.Is(cause, store.ErrUnknown):
		return cause
	}
	return t.damage("a checkpoint after number %d is refused, and no newer one is kept: the log has gone back to an earlier state", after)
}

// signedUpTo makes next the newest checkpoint's tree.
func (t *Trail) signedUpTo(next tree, text []byte, seq uint64) {
	t.pending = t.pending[next.Len()-t.signed.Len():]
	t.signed, t.keptSeq, t.newestNote, t.pinDue = next, seq, text, true
	t.beat.at = time.Now()
	t.signedAt.Store(t.beat.at.UnixNano())
	t.metrics.checkpoints.Inc()
	t.metrics.signed.Set(float64(t.base + next.Len()))
}

// adopt takes up the checkpoints kept since: by another relay, or by this one without
// knowing. One in contradiction to the entries, or of another key or generation, has the
// trail read back.
func (t *Trail) adopt(ctx context.Context) error {
	_, err := each(ctx, t.checkpoints, store.Pos(t.keptSeq)+1, func(item store.Item) error {
		if item.Gap != nil {
			return t.damage("checkpoints %d to %d are missing", item.Gap.From, item.Gap.To)
		}
		c, err := decodeKept(item.Record)
		if err != nil {
			return t.damage("checkpoint %d: %w", item.Record.Pos, err)
		}
		return t.adoptOne(ctx, &c)
	})
	return err
}

func (t *Trail) adoptOne(ctx context.Context, c *Kept) error {
	if c.PublicKey != t.key.public {
		return t.damage("checkpoint %d is signed with the key %s", c.Seq, c.PublicKey)
	}
	if c.Size > t.tree.Len() {
		if _, err := t.catchUp(ctx, nil); err != nil {
			return err
		}
	}
	if c.Size > t.tree.Len() || c.Size < t.signed.Len() || t.signed.With(t.pending[:c.Size-t.signed.Len()]...).Root() != c.Root {
		return t.damage("checkpoint %d, of size %d, is of other entries", c.Seq, c.Size)
	}
	t.signedUpTo(t.signed.With(t.pending[:c.Size-t.signed.Len()]...), []byte(c.Note), c.Seq)
	return nil
}
