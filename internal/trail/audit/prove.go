package audit

import "golang.org/x/mod/sumdb/tlog"

// proof proves one generation. Its numbers are leaves of the generation's tree.
type proof struct {
	base    int64
	leaves  []tlog.Hash // as they are; zero where one is missing
	history []Kept      // of the generation

	signed   tree  // proven by the newest good checkpoint
	end      int64 // covered by some checkpoint
	good     int   // proven checkpoints
	problems []Problem
}

// prove grows the signed tree checkpoint by checkpoint. It returns the leaf hashes with
// a signature, zero for the others: from the checkpoints' own lists, or where those are
// damaged from the entries, if they give the signed root.
func (g *proof) prove() []tlog.Hash {
	var want []tlog.Hash
	for _, c := range g.history {
		if leaves, next, ok := g.signed.Explained(c.Size, c.Root, g.candidates(c)...); ok {
			want = append(want, leaves...)
			g.signed = next
			g.good++
		} else if t, ok := c.alone(); ok && c.from() >= g.signed.Len() {
			g.unproven(g.signed.Len(), c.from())
			want = append(append(want, make([]tlog.Hash, c.from()-g.signed.Len())...), c.Leaves...)
			g.signed = t
			g.good++
		}
		g.end = max(g.end, c.Size)
	}
	g.unproven(g.signed.Len(), g.end)
	return want
}

// unproven reports [from, to), where neither the checkpoints' hashes nor the
// entries give the signed roots.
func (g *proof) unproven(from, to int64) {
	if from < to {
		g.problems = append(g.problems, Problem{
			Kind: "unproven", From: from, To: to - 1,
			Detail: "neither they nor the hashes kept with the checkpoints give the signed root",
		})
	}
}

// candidates are the leaves that may stand between the signed tree and c's: by the lists kept with
// the checkpoints, and by the entries.
func (g *proof) candidates(c Kept) (all [][]tlog.Hash) {
	base := g.signed.Len()
	if c.Size < base {
		return nil
	}
	if from := c.from(); from <= base {
		all = append(all, c.Leaves[base-from:])
	} else if from <= int64(len(g.leaves)) { // a checkpoint between is missing
		all = append(all, append(g.leaves[base:from:from], c.Leaves...))
	}
	if c.Size <= int64(len(g.leaves)) {
		all = append(all, g.leaves[base:c.Size])
	}
	return all
}

// shifted gives problems of a generation's leaves as problems of entries.
func shifted(problems []Problem, base int64) []Problem {
	for i := range problems {
		problems[i].From += base
		problems[i].To += base
	}
	return problems
}
