package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// keep opens the trail, appends, signs a checkpoint when the tree has grown, and then not again for the time
// of every; it signs the heartbeats, and opens the trail again where it cannot be used.
// It ends with ctx.
func (t *Trail) keep(ctx context.Context, every time.Duration) {
	defer close(t.done)
	t.firstTry(ctx)
	var appending sync.WaitGroup
	defer appending.Wait()
	appending.Go(func() { t.appendAll(ctx) })
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
		var d *draft
		err := t.inTurn(ctx, func() (err error) {
			d, err = t.draft(stop)
			return err
		})
		if err != nil || d == nil {
			return err
		}
		if err = t.options.certain(ctx); err != nil {
			return err
		}
		if err = d.sign(ctx); err != nil { // the key may be far away, and appends go on meanwhile
			return err
		}
		if err = t.inTurn(ctx, func() error { return t.keepSigned(ctx, d) }); err == nil {
			continue
		}
		if failures++; failures == appendAttempts || ctx.Err() != nil {
			nudge(t.grew) // the loop tries again
			return fmt.Errorf("keep checkpoint: %w", err)
		}
	}
}

func (o *Options) certain(ctx context.Context) error {
	if o.Certain == nil {
		return nil
	}
	if err := o.Certain(ctx); err != nil {
		return fmt.Errorf("%w: another relay may have taken it over: %w", ErrUnavailable, err)
	}
	return nil
}

// inTurn does something in the turn of a usable trail.
func (t *Trail) inTurn(ctx context.Context, do func() error) error {
	if err := t.use(ctx); err != nil {
		return err
	}
	defer t.unlock()
	return do()
}

// signer has the key and the tree of the newest generation. It belongs to whoever has the
// trail's turn.
type signer struct {
	key        keyPair // of the newest generation
	base       int64   // the newest generation's first index
	signed     tree    // of this generation, at the newest checkpoint
	keptSeq    uint64  // the newest checkpoint's position
	beat       beat    // of this process
	newestNote []byte  // the newest checkpoint's signed note; nil where it is not known
	pinDue     bool    // it is not next to the key yet
	marked     bool    // the key is known to have signed
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

func (d *draft) sign(ctx context.Context) (err error) {
	d.at = time.Now()
	d.text, err = signCheckpoint(ctx, d.key, d.next, d.promise, d.at)
	return err
}

// draft drafts the next checkpoint, nil where none is due. Needs the turn.
func (t *Trail) draft(stop bool) (*draft, error) {
	if t.signed.Len() == t.entriesOfTree() && (t.signed.Len() == 0 || !t.beat.due(stop)) {
		return nil, t.keepPin()
	}
	from := t.base + t.signed.Len()
	leaves := t.known.between(from, min(t.next(), from+maxLeaves))
	return &draft{
		key: t.key, before: t.signed, leaves: leaves, next: t.signed.With(leaves...), after: t.keptSeq,
		promise: t.beat.promise(stop), stop: stop,
	}, nil
}

// keepSigned keeps a signed checkpoint after the newest known one. Where it is refused, or nobody
// knows whether it was stored, the trail is read back. A crash before it is kept leaves the entries
// unsigned until the next start; one after it leaves an older pin, also part of the
// kept history. Needs the turn.
func (t *Trail) keepSigned(ctx context.Context, d *draft) error {
	if t.keptSeq != d.after || t.key.public != d.key.public || t.signed.Len() != d.before.Len() || t.entriesOfTree() < d.next.Len() {
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
	if err != nil {
		return t.notKept("append checkpoint", err)
	}
	t.signedUpTo(d.next, d.text, uint64(pos))
	t.beat.signed(d.stop)
	t.offer()
	return t.keepPin()
}

// notKept is the error for a checkpoint that was perhaps stored, or that the log refuses as it has
// another end: then the trail is read back.
func (t *Trail) notKept(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnknown) {
		t.suspect(err.Error())
	}
	return err
}

// signedUpTo makes next the newest checkpoint's tree.
func (t *Trail) signedUpTo(next tree, text []byte, seq uint64) {
	t.signed, t.keptSeq, t.newestNote, t.pinDue = next, seq, text, true
	t.beat.at = time.Now()
	t.signedAt.Store(t.beat.at.UnixNano())
	t.metrics.checkpoints.Inc()
	t.metrics.signed.Set(float64(t.base + next.Len()))
	nudge(t.news)
}
