package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Offer is a kept checkpoint for witnesses: they cosign it, or refuse it.
type Offer struct {
	// Note is signed by the log: C2SP tlog-checkpoint, its size not 0.
	Note []byte
	// Origin, Size and Root are the note's.
	Origin string
	Size   int64
	Root   tlog.Hash
	// Again: it was offered just before, and not all witnesses signed it.
	Again bool
	// Prove gives a consistency proof (RFC 6962, section 2.1.2) from the tree of old
	// entries. It is empty where old is 0 or Size.
	Prove func(ctx context.Context, old int64) ([]tlog.Hash, error)
	// Reaches reports whether some kept checkpoint covers size entries, the ones of other
	// relays with the same logs included.
	Reaches func(ctx context.Context, size int64) (bool, error)
}

// cosignAgain is the wait before a checkpoint is offered again.
const cosignAgain = time.Second

// offered is an Offer as the trail knows it.
type offered struct {
	text   []byte
	public string // of the signature
	base   int64
	size   int64
	root   tlog.Hash
	seq    uint64 // of its kept checkpoint
}

// offer has the witnesses asked for the newest checkpoint. It takes the place of an older
// one not offered yet. Needs the turn.
func (t *Trail) offer() {
	if t.options.Cosign == nil || t.signed.Len() == 0 || t.newestNote == nil {
		return
	}
	select {
	case <-t.offers:
	default:
	}
	t.offers <- offered{t.newestNote, t.key.public, t.base, t.signed.Len(), t.signed.Root(), t.keptSeq} // only who has the turn fills it
}

// offerAgain offers the newest checkpoint of a trail read back. Needs the turn.
func (t *Trail) offerAgain(x *examination) {
	for _, c := range slices.Backward(x.history) {
		if c.base == t.base && c.public == t.key.public && c.size == t.signed.Len() && c.root == t.signed.Root() {
			t.newestNote = []byte(c.text)
			t.offer()
			return
		}
	}
}

// askWitnesses has each newest checkpoint cosigned, outside of the turn: a slow witness
// delays no append and no signature. It ends with ctx; the next start offers the newest
// checkpoint again.
func (t *Trail) askWitnesses(ctx context.Context) {
	defer close(t.asked)
	again := time.NewTimer(cosignAgain)
	defer again.Stop()
	var o offered
	for failing := false; ; {
		var offer Offer
		select {
		case <-ctx.Done():
			return
		case o = <-t.offers:
			offer = t.offerOf(o)
		case <-again.C:
			offer = t.offerOf(o)
			offer.Again = true
		}
		if o.size == 0 {
			continue
		}
		again.Stop()
		text, err := t.options.Cosign(ctx, offer)
		var kept error
		if text != nil {
			kept = t.keepCosigned(ctx, o, text)
		}
		if kept != nil && !failing && ctx.Err() == nil {
			t.log.Error("a cosigned checkpoint cannot be kept; it is tried again", "error", kept)
		}
		failing = kept != nil
		if err != nil || failing {
			again.Reset(cosignAgain)
			continue
		}
		t.cosigned.Store(o.base + o.size)
	}
}

func (t *Trail) offerOf(o offered) Offer {
	return Offer{
		Note: o.text, Origin: tlogproof.NoteOrigin(o.text), Size: o.size, Root: o.root,
		Prove:   func(ctx context.Context, old int64) ([]tlog.Hash, error) { return t.proveConsistency(ctx, o, old) },
		Reaches: func(ctx context.Context, size int64) (bool, error) { return t.reaches(ctx, o, size) },
	}
}

// reaches takes up the checkpoints kept by others, and compares.
func (t *Trail) reaches(ctx context.Context, o offered, size int64) (bool, error) {
	if err := t.lock(ctx); err != nil {
		return false, err
	}
	defer t.unlock()
	if err := t.ready(ctx); err != nil {
		return false, err
	}
	if err := t.adopt(ctx); err != nil {
		return false, err
	}
	return t.base != o.base || t.signed.Len() >= size, nil
}

// keepCosigned keeps a checkpoint once more, with the witnesses' signatures. It comes after
// all others or not at all: where the trail has grown since, the next one is on its way to
// the witnesses. A crash before it is kept leaves the checkpoint without them, until the next start
// offers it again.
func (t *Trail) keepCosigned(ctx context.Context, o offered, text []byte) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	if err := t.ready(ctx); err != nil {
		return err
	}
	if t.key.public != o.public || t.signed.Len() != o.size || !sameText(t.newestNote, text) {
		return nil
	}
	c, err := openCheckpoint(o.public, text)
	if err != nil {
		return err
	}
	kept, err := encodeKept(t.key, text, c.signedAt, t.signed, nil)
	if err != nil {
		return err
	}
	pos, err := t.checkpoints.AppendAt(ctx, store.Pos(t.keptSeq), kept)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnknown) { // by another relay, or by this one
		err = errors.Join(err, t.adopt(ctx))
	}
	if err != nil {
		return fmt.Errorf("keep cosigned checkpoint: %w", err)
	}
	t.keptSeq, t.newestNote, t.pinDue = uint64(pos), text, true
	return t.keepPin()
}

// sameText reports whether two signed notes differ in their signatures at most.
func sameText(a, b []byte) bool {
	text := tlogproof.NoteText(a)
	return len(text) > 0 && bytes.Equal(text, tlogproof.NoteText(b))
}
