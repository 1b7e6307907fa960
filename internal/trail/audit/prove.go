package audit

import (
	"cmp"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// twoHistories is said of a checkpoint whose key has signed other entries elsewhere in the trail.
const twoHistories = "it is signed with the trail's key, and covers other entries: the key has signed two histories"

// proof proves one generation.
type proof struct {
	base    int64
	leaves  []tlog.Hash // as they are; zero where one is missing
	history []Kept      // of the generation

	signed   tree  // proven by the newest good checkpoint
	end      int64 // covered by some checkpoint
	good     int   // checkpoints of a root that is proven
	forked   []uint64
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
		} else if t, ok := c.alone(); ok && c.from() > g.signed.Len() {
			g.unproven(g.signed.Len(), c.from())
			want = append(append(want, make([]tlog.Hash, c.from()-g.signed.Len())...), c.Leaves...)
			g.signed = t
			g.good++
		}
		g.end = max(g.end, c.Size)
	}
	g.unproven(g.signed.Len(), g.end)
	if g.good < len(g.history) {
		g.forks(want)
	}
	return want
}

// forks names the checkpoints whose signed root is not that of the signed leaves: their key has
// signed two histories.
func (g *proof) forks(want []tlog.Hash) {
	bySize := slices.Clone(g.history)
	slices.SortStableFunc(bySize, func(a, b Kept) int { return cmp.Compare(a.Size, b.Size) })
	var proven tree
	for i := range bySize {
		c := &bySize[i]
		if c.Size > int64(len(want)) { // it was named as unproven; its own hashes may tell more
			if at, sound := c.at(g.signed.Len()); sound && at.Root() != g.signed.Root() {
				g.forked = append(g.forked, c.Seq)
			}
			continue
		}
		if slices.Contains(want[proven.Len():c.Size], tlog.Hash{}) {
			return
		}
		if proven = proven.With(want[proven.Len():c.Size]...); proven.Root() != c.Root && c.Seq > 0 {
			g.forked = append(g.forked, c.Seq) // the one next to the key, without a number, has words of its own
		}
	}
}

// unproven reports the leaves [from, to), where neither the checkpoints' hashes nor the
// entries give the signed roots.
func (g *proof) unproven(from, to int64) {
	if from < to {
		g.problems = append(g.problems, Problem{
			Kind: "unproven", From: g.base + from, To: g.base + to - 1,
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

// compare names the differences between the entries and the signed ones, and the missing ones under
// no signed root. Runs of one kind are one problem.
func (g *proof) compare(want []tlog.Hash) (problems []Problem) {
	found := func(index int64, kind, detail string) {
		for k := len(problems) - 1; k >= max(0, len(problems)-2); k-- {
			if p := &problems[k]; p.Kind == kind && p.Detail == detail && p.To == index-1 {
				p.To = index
				return
			}
		}
		problems = append(problems, Problem{Kind: kind, From: index, To: index, Detail: detail})
	}
	tlogproof.Compare([]tlogproof.Part{{First: g.base, Got: g.leaves, Signed: want}}, found)
	for i := len(want); i < len(g.leaves); i++ {
		if g.leaves[i] == (tlog.Hash{}) {
			found(g.base+int64(i), tlogproof.Missing, "nothing stands there, and it was not signed yet")
		}
	}
	return append(problems, g.problems...)
}

// proveAll proves the generations, the oldest first, and returns their keys by base.
func (x *examination) proveAll(own keyPair) (keys map[int64]string) {
	keys = map[int64]string{}
	bases := x.bases()
	var entries []Problem
	for i, base := range bases {
		end := int64(len(x.leaves))
		if i+1 < len(bases) {
			end = min(end, bases[i+1])
		}
		g := &proof{base: base, leaves: x.leaves[min(base, end):end]}
		public := x.keyOf(bases, i, own)
		keys[base] = public
		for _, c := range x.history {
			switch {
			case c.Base == base && c.PublicKey == public:
				g.history = append(g.history, c)
			case c.Base == base:
				x.checkpointProblem(c.Seq, "it is signed with another key: "+c.PublicKey)
			}
		}
		if x.pin != nil && x.pin.Base == base && x.pin.PublicKey == public && x.pin.Size > 0 && (len(g.history) == 0 || x.pin.Size > g.history[len(g.history)-1].Size) {
			g.history = append(g.history, *x.pin)
		}
		want := g.prove()
		entries = append(entries, g.compare(want)...)
		slices.Sort(g.forked)
		for _, seq := range g.forked {
			x.checkpointProblem(seq, twoHistories)
		}
		x.report.Checkpoints += g.good
		x.signed, x.end = g.signed, g.end
		made := x.generation(g, own)
		x.gens = append(x.gens, made)
		x.recover(made, g.leaves, want)
	}
	x.report.Problems = append(entries, x.report.Problems...)
	return keys
}

// keyOf is the key of a generation: the one named by the next generation's first entry,
// else our own if it has signed there, else the first signer's. So nobody continues
// another's tree with a key of his own.
func (x *examination) keyOf(bases []int64, i int, own keyPair) string {
	if i+1 < len(bases) {
		if o := x.openings[bases[i+1]]; o.Previous != nil && o.Previous.Base == bases[i] && o.Previous.PublicKey != "" {
			return o.Previous.PublicKey
		}
	}
	first := ""
	for n, c := range append(x.history[:len(x.history):len(x.history)], x.pins()...) {
		switch isPin := n == len(x.history); {
		case c.Base != bases[i]:
		case own.isOwn(c.PublicKey) && (!isPin || x.marked): // a key's first pin comes before its first checkpoint
			return c.PublicKey
		case first == "":
			first = c.PublicKey
		}
	}
	return first
}

// pins is the checkpoint next to the key, if it is good and covers anything.
func (x *examination) pins() []Kept {
	if x.pin == nil || x.pin.Size == 0 {
		return nil
	}
	return []Kept{*x.pin}
}

// bases are where generations begin: at 0, where an entry opens one, and where
// checkpoints say so. An entry covered by an older generation's checkpoint opens none.
func (x *examination) bases() []int64 {
	bases := map[int64]int64{0: 0} // and how far their checkpoints reach
	for _, c := range x.history {
		bases[c.Base] = max(bases[c.Base], c.Base+c.Size)
	}
	if x.pin != nil {
		bases[x.pin.Base] = max(bases[x.pin.Base], x.pin.Base+x.pin.Size)
	}
	for index := range x.openings {
		covered := false
		for base, end := range bases {
			covered = covered || base < index && index < end
		}
		if _, known := bases[index]; !known && !covered {
			bases[index] = index
		}
	}
	var all []int64
	for base := range bases {
		all = append(all, base)
	}
	slices.Sort(all)
	return all
}

// generation sums up a proof. The key is the newest checkpoint's, or the one named by
// the opening entry.
func (x *examination) generation(g *proof, own keyPair) Generation {
	made := Generation{Base: g.base, Size: g.signed.Len(), Root: g.signed.Root()}
	if n := len(g.history); n > 0 {
		made.PublicKey = g.history[n-1].PublicKey
	} else if o, ok := x.openings[g.base]; ok {
		made.PublicKey = o.Key
	} else if g.base == 0 {
		made.PublicKey = own.public
	}
	if verifier, err := note.NewVerifier(made.PublicKey); err == nil {
		made.Origin = verifier.Name()
	}
	return made
}
