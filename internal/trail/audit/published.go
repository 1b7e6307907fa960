package audit

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// The trail's files for public tools (tlog/) have checkpoints too. They are written after
// the trail, so a trail with less in it was put back to an earlier state.

// place is the place of the newest entry under a checkpoint.
func (c *Kept) place() Place {
	return Place{Index: c.Base + c.Size - 1, Origin: c.Origin, Size: c.Size, Root: &c.Root}
}

// The two sources of x.forwarded, as a problem's words for them.
const (
	givenToSinks = "the sinks were given"
	inFiles      = "tlog/ has"
)

// takePublished takes the newest published checkpoint as handed on, if it is newer. Those
// of unknown keys are foreign: see foreignEnd.
func (x *examination) takePublished() {
	for _, p := range x.published {
		if c, err := x.openKnown([]byte(p.Checkpoint)); err == nil {
			if at := c.place(); c.Size > 0 && (x.forwarded == nil || at.Index > x.forwarded.Index) {
				x.takeForwarded(&at, inFiles)
			}
		} else if c, err := openCheckpoint(p.Key, []byte(p.Checkpoint)); err == nil {
			x.foreign = append(x.foreign, c)
		}
	}
}

// noteSum tells the notes of checkpoints apart.
func noteSum(note string) [8]byte {
	sum := sha256.Sum256([]byte(note))
	return [8]byte(sum[:8])
}

// said tells checkpoints apart by what was signed and when, however the signatures are spelled.
func (c *Kept) said() [8]byte {
	text, _, _ := strings.Cut(c.Note, "\n\n")
	return noteSum(text + c.Time.String())
}

// checkHistory names the checkpoints that were left out of the log, and that the files have
// still. Those that cover more than the log can prove are of a trail that was put back, which
// other findings say.
func (x *examination) checkHistory() {
	if x.options.Files == nil {
		return
	}
	x.options.Files.History(func(p tlogproof.Line) {
		if x.notes[noteSum(p.Checkpoint)] || p.Seq > x.keptSeq && !x.still {
			return
		}
		c, err := x.openKnown([]byte(p.Checkpoint))
		if err != nil || c.Time.IsZero() || x.notes[c.said()] {
			return // the files are damaged, and are written again
		}
		proven := slices.ContainsFunc(x.gens, func(g Generation) bool { return g.Base == c.Base && c.Size <= g.Size })
		named := slices.ContainsFunc(x.report.Problems, func(q tlogproof.Finding) bool {
			return q.Kind == tlogproof.KindCheckpoint && q.From <= int64(p.Seq) && int64(p.Seq) <= q.To
		})
		if proven && !named {
			x.checkpointProblem(p.Seq, "tlog/ has a checkpoint under this number, and the log has it nowhere")
		}
	})
}

// openKnown opens a note with the key, under the note's origin, or else with an earlier signer's.
func (x *examination) openKnown(text []byte) (c Kept, err error) {
	var keys []string
	if own, err := x.key.named(tlogproof.NoteOrigin(text)); err == nil {
		keys = append(keys, own.public)
	}
	for i := range x.history {
		keys = append(keys, x.history[i].PublicKey)
	}
	err = errors.New("check signature: no key is known")
	for _, public := range slices.Compact(keys) {
		if c, err = openCheckpoint(public, text); err == nil {
			break
		}
	}
	return c, err
}

// checkForeign names logs longer than the trail, under keys unknown to it.
func (x *examination) checkForeign() {
	known := x.foreignEnd(x.knownEnd())
	for i := range x.foreign {
		c := &x.foreign[i]
		last := c.Base + c.Size - 1
		if last <= x.lastEntry() {
			continue
		}
		kind, from := tlogproof.KindForwarded, last
		if end := x.truncatedFrom(); x.isOfTrail(c) && last < known && end <= last {
			kind, from = tlogproof.KindTruncated, end
		}
		if slices.ContainsFunc(x.report.Problems, func(p tlogproof.Finding) bool { return p.Kind == kind && p.From == from && p.To == last }) {
			continue // named already, as an entry known to the sinks
		}
		x.problem(kind, from, last, "tlog/ has a signed log of %d entries of the origin %s, under a key unknown to this trail: %s", c.Size, c.Origin, c.PublicKey)
	}
}

func (x *examination) isOfTrail(c *Kept) bool {
	return tlogproof.TrailOf(c.Origin) == tlogproof.TrailOf(x.gens[0].Origin)
}

// maxForeign bounds the places kept after the trail's end for the entries of foreign logs:
// nobody has vouched for their number.
const maxForeign = 1 << 16

// foreignEnd is the number of entries by the trail's own files; end are known otherwise.
// A trail put back to before a rotation does not know its newer key. It goes on after
// them, in a new generation. Else it would give their indexes, and a generation's name,
// twice. A log of another name, or of a size out of all proportion, is named and decides
// nothing.
func (x *examination) foreignEnd(end int64) int64 {
	from := end
	slices.SortFunc(x.foreign, func(a, b Kept) int { return cmp.Compare(a.Base, b.Base) })
	for i := range x.foreign {
		c := &x.foreign[i]
		if x.isOfTrail(c) && c.Base <= end && c.Base+c.Size-from <= maxForeign {
			end = max(end, c.Base+c.Size)
		}
	}
	return end
}

// endsBeforeForeign reports whether an entry of a foreign log, of those before end, stands
// after the newest entry.
func (x *examination) endsBeforeForeign(end int64) bool {
	return slices.ContainsFunc(x.foreign, func(c Kept) bool {
		return x.isOfTrail(&c) && c.Base+c.Size > x.lastEntry()+1 && c.Base+c.Size <= end
	})
}
