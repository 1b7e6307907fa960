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

// complete puts those checkpoints of the trail into the histories that they lack and the tiles prove. Each
// reading of one checks its signatures, and of some the trail itself has none: so only those are read.
func (k *Keeper) complete(ctx context.Context) error {
	seqs, err := k.published()
	if err != nil {
		return err
	}
	found, count, newest := map[*writer][]proof.Line{}, 0, uint64(0)
	for _, seq := range seqs {
		if seq <= newest+1 {
			newest = seq
			continue
		}
		err := k.trail.Checkpoints(ctx, newest+1, func(c audit.Kept) error {
			w := k.writerOf(&c)
			switch {
			case c.Seq >= seq:
				return errEnd
			case w == nil:
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
		newest = seq
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

// published are the numbers of the checkpoints in all histories.
func (k *Keeper) published() (seqs []uint64, err error) {
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
	return seqs, nil
}
