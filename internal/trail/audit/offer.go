package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
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

	public string // of the signature
	base   int64  // of its generation
	seq    uint64 // of the newest checkpoint
}

// Offers gives the newest checkpoint, whenever there is another, to one caller. One that was not
// taken is replaced. The next start offers the newest one again.
func (t *Trail) Offers() <-chan Offer {
	t.witnessed.Store(true)
	return t.offers
}

// offer offers the newest checkpoint. Needs the turn.
func (t *Trail) offer() {
	if t.signed.Len() == 0 || t.newestNote == nil {
		return
	}
	select {
	case <-t.offers:
	default:
	}
	o := Offer{Note: t.newestNote, Origin: tlogproof.NoteOrigin(t.newestNote), Size: t.signed.Len(), Root: t.signed.Root(), public: t.key.public, base: t.base, seq: t.keptSeq}
	o.Prove = func(ctx context.Context, old int64) ([]tlog.Hash, error) { return t.proveConsistency(ctx, &o, old) }
	o.Reaches = func(ctx context.Context, size int64) (bool, error) { return t.reaches(ctx, &o, size) }
	t.offers <- o // only who has the turn fills it
}

// reaches reads the checkpoints that were kept after o: this relay may have been thought dead, and another
// one signs. It takes no turn and reads nothing else, as a witness that lies would hold up the trail
// otherwise. Where one of them cannot be read nobody knows what it covered, and nobody is accused.
func (t *Trail) reaches(ctx context.Context, o *Offer, size int64) (reached bool, err error) {
	damaged := false
	_, err = each(ctx, t.checkpoints, store.Pos(o.seq)+1, func(item store.Item) error {
		if item.Gap != nil {
			damaged = true
			return nil
		}
		c, err := decodeKept(item.Record)
		damaged = damaged || err != nil
		reached = reached || err == nil && c.PublicKey == o.public && c.Size >= size
		return nil
	})
	if err == nil && damaged && !reached {
		err = errors.New("a later checkpoint than the one for the witnesses cannot be read")
	}
	return reached, err
}

// KeepCosigned keeps a checkpoint once more: text is its note with witnesses' signatures. It comes
// after all others or not at all: where the trail has grown since, the next one is on its way to
// the witnesses. A crash before it is kept leaves the checkpoint without them, until the next start
// offers it again.
func (t *Trail) KeepCosigned(ctx context.Context, o Offer, text []byte) error {
	if err := t.use(ctx); err != nil {
		return err
	}
	defer t.unlock()
	if t.key.public != o.public || t.signed.Len() != o.Size || !sameText(t.newestNote, text) {
		return nil
	}
	c, err := openCheckpoint(o.public, text)
	if err != nil {
		return err
	}
	kept, err := encodeKept(t.key, text, c.Time, t.signed, nil)
	if err != nil {
		return err
	}
	pos, err := t.checkpoints.AppendAt(ctx, store.Pos(t.keptSeq), kept)
	if err != nil {
		return t.notKept("keep cosigned checkpoint", err)
	}
	t.keptSeq, t.newestNote, t.pinDue = uint64(pos), text, true
	nudge(t.news)
	return t.keepPin()
}

// Cosigned notes that all witnesses have signed a checkpoint.
func (t *Trail) Cosigned(o Offer) { t.cosigned.Store(o.base + o.Size) }

// sameText reports whether two signed notes differ in their signatures at most.
func sameText(a, b []byte) bool {
	text := tlogproof.NoteText(a)
	return len(text) > 0 && bytes.Equal(text, tlogproof.NoteText(b))
}

// tilesPause is the wait for the tiles of a checkpoint, which are written after it.
const tilesPause = 50 * time.Millisecond

// proveConsistency proves the tree of the first old entries to begin o's tree (RFC 6962,
// section 2.1.2). The hashes come from the tiles, each proven with o's root: so the refusal of a
// proof by a witness is about the trees, and not about our reading. It waits for tiles that are not
// there yet, as long as ctx lets it.
func (t *Trail) proveConsistency(ctx context.Context, o *Offer, old int64) ([]tlog.Hash, error) {
	if old <= 0 || old >= o.Size {
		return nil, nil
	}
	if t.files == nil {
		return nil, errors.New("prove consistency: the trail has no tiles")
	}
	for {
		tiles := tlog.TileHashReader(tlog.Tree{N: o.Size, Hash: o.Root}, t.files.Tiles(o.Origin))
		proof, err := tlog.ProveTree(o.Size, old, tiles)
		if err == nil {
			return proof, nil
		}
		if retry.Sleep(ctx, tilesPause) != nil {
			return nil, fmt.Errorf("prove consistency of %d with %d entries: %w", o.Size, old, err)
		}
	}
}
