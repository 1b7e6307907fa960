package verify

import (
	"context"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// damage is a chunk with its leaves as signed.
type damage struct {
	*chunk
	truth []tlog.Hash // nil: not known
}

// together is how many damaged chunks are compared with each other, so that an entry in the place of
// another one is told from an altered one. They take 10 MB.
const together = 128

// name reports all damage to the files of the proven tree, and completes the tails.
func (v *solver) name(ctx context.Context) error {
	v.nameTiles()
	for suspects := range slices.Chunk(v.suspects(), together) {
		var all []damage
		for _, n := range suspects {
			c, err := v.l.readChunk(ctx, n, v.s.size)
			if err != nil {
				return err
			}
			d := damage{chunk: c, truth: v.truthOf(c)}
			if d.truth == nil {
				v.s.clearTails(n)
			} else {
				v.s.setTails(n, d.truth)
			}
			all = append(all, d)
		}
		v.nameEntries(all)
	}
	for _, f := range v.s.records {
		v.l.report.Integrity.add(f)
	}
	return nil
}

// suspects are the chunks whose files are not all as signed.
func (v *solver) suspects() (bad []int64) {
	for n, signed := range v.proven[1] {
		if v.fell && int64(n) >= v.limit {
			break
		}
		if signed == (tlog.Hash{}) || v.s.bundles[n] != signed || v.s.tiles[n] != signed {
			bad = append(bad, int64(n))
		}
	}
	if c := v.s.last; c != nil && !v.fell && (!c.agree() || !slices.Equal(c.bundle, v.last.Signed)) {
		bad = append(bad, c.n)
	}
	return bad
}

// truthOf are a chunk's leaves as signed; nil where they cannot be known.
func (v *solver) truthOf(c *chunk) []tlog.Hash {
	if c.width < width {
		return v.last.Signed
	}
	leaves := c.leaves()
	if _, ok := proof.NewTree(leaves).Prove(width, v.proven[1][c.n], proof.Edge{}); !ok {
		return nil
	}
	return leaves.Signed
}

// nameTiles compares the tiles above the chunks.
func (v *solver) nameTiles() {
	for level := 1; level < len(v.levels); level++ {
		count := int64(len(v.levels[level]))
		for n := int64(0); n*width < count; n++ {
			t := tlog.Tile{L: level, N: n, W: int(min(width, count-n*width))}
			kept := v.levels[level][n*width : n*width+int64(t.W)]
			signed := v.proven[level][n*width : n*width+int64(t.W)]
			wrong := v.wrong[t]
			if wrong == "" && !slices.Contains(signed, tlog.Hash{}) && !slices.Equal(kept, signed) {
				wrong = "it does not have the hashes that were signed"
			}
			if wrong != "" {
				v.l.report.Integrity.about(proof.KindTile, v.l.origin, proof.TilePath(t), "%s", wrong)
			}
		}
	}
}

// nameEntries tells the fate of each entry of damaged chunks.
func (v *solver) nameEntries(all []damage) {
	var parts []proof.Run
	of := map[int64]damage{} // by chunk
	for _, d := range all {
		first := d.n * width
		if d.truth == nil {
			v.l.entryFinding(proof.KindUnproven, first, first+int64(d.width)-1, d.bundleFile, "neither they nor their hashes give the signed root")
			continue
		}
		if d.tileWrong == "" && !slices.Equal(d.tile, d.truth) {
			d.tileWrong = "it does not have the hashes that were signed"
		}
		if d.tileWrong != "" {
			v.l.report.Integrity.about(proof.KindTile, v.l.origin, d.tileFile, "%s", d.tileWrong)
		}
		if d.bundle == nil {
			d.bundle = make([]tlog.Hash, d.width)
		}
		parts, of[d.n] = append(parts, proof.Run{First: first, Got: d.bundle, Signed: d.truth}), d
	}
	proof.CompareRuns(parts, func(leaf int64, kind, detail string) {
		d := of[leaf/width]
		if d.bundleWrong != "" && kind == proof.KindMissing {
			detail = d.bundleWrong
		}
		if detail == notThere && d.width == width { // it may be archived
			at := v.l.base + leaf
			v.l.complete.absent = adjoin(v.l.complete.absent, Archived{Log: v.l.origin, From: at, To: at})
			return
		}
		v.l.entryFinding(kind, leaf, leaf, d.bundleFile, "%s", detail)
	})
}

func (l *logCheck) entryFinding(kind string, from, to int64, file, format string, args ...any) {
	l.report.Integrity.run(kind, l.origin, l.base+from, l.base+to, file, format, args...)
}
