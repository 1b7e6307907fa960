package tiles

import (
	"context"
	"errors"
	"slices"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// A checkpoint is passed over where the trail's hashes do not give its root. They may be wrong: an entry
// is damaged, and another relay has signed it. The next checkpoints prove more. So what is missing in the
// histories is sought in the trail once more, and what the tiles prove by then is added. The same is done
// at each start: a crash may have left out the last checkpoint before a new generation.

// complete puts those checkpoints of the trail into the histories that they lack and the tiles prove.
func (k *Keeper) complete(ctx context.Context) error {
	holes, err := k.holes()
	if err != nil {
		return err
	}
	found, count := map[*writer][]proof.Line{}, 0
	for _, hole := range holes {
		err := k.trail.Checkpoints(ctx, hole.from, func(c audit.Kept) error {
			w := k.writerOf(&c)
			if c.Seq > hole.to {
				return errEnd
			}
			if w == nil {
				return nil
			}
			has, err := w.has(&c)
			if err != nil || !has {
				return k.failed(c.Base, w, err)
			}
			found[w] = append(found[w], proof.Line{Seq: c.Seq, Key: c.PublicKey, Checkpoint: c.Note})
			if count++; count == batchLines {
				err, count = add(found), 0
			}
			return err
		}, func() error { return errEnd })
		if !errors.Is(err, errEnd) {
			return err
		}
	}
	return add(found)
}

// add adds lines to the histories.
func add(found map[*writer][]proof.Line) error {
	for w, lines := range found {
		if err := w.mend(w.key, lines); err != nil {
			return err
		}
		w.seq = max(w.seq, lines[len(lines)-1].Seq)
		delete(found, w)
	}
	return nil
}

// hole is a run of numbers, both ends included.
type hole struct{ from, to uint64 }

// holes are the numbers of checkpoints that no history has, up to the newest one's. They are of
// checkpoints that the trail has lost, too.
func (k *Keeper) holes() (holes []hole, err error) {
	var seqs []uint64
	for _, w := range k.writers {
		err := w.eachText(func(_ int, text []byte) error {
			if line, err := proof.ParseLine(text); err == nil { // else check finds it
				seqs = append(seqs, line.Seq)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(seqs)
	newest := uint64(0)
	for _, seq := range seqs {
		if seq > newest+1 {
			holes = append(holes, hole{newest + 1, seq - 1})
		}
		newest = seq
	}
	return holes, nil
}
