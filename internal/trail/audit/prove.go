package audit

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// twoHistories is said of a checkpoint whose key has signed other entries elsewhere in the trail.
const twoHistories = "it is signed with the trail's key, and covers other entries: the key has signed two histories"

// neverSigned is said of an entry that is missing, and under no signed root.
const neverSigned = "nothing stands there, and it was not signed yet"

// proof proves one generation: by the hashes of its entries, and by those kept with its checkpoints.
type proof struct {
	base    int64
	history []*Kept             // of the generation
	hashes  tlogproof.LeafLists // the first list is of the entries as they are

	signed tree  // proven by the newest good checkpoint
	end    int64 // covered by some checkpoint
	newest *Kept // that checkpoint; nil for none
	good   int   // checkpoints of a root that is proven
	forked []uint64
}

// prove finds the leaf hashes with a signature.
func (g *proof) prove() {
	for _, c := range g.history {
		g.end = max(g.end, c.Size)
	}
	for _, c := range g.history {
		g.list(c)
	}
	all := tlogproof.NewTree(&g.hashes)
	for _, c := range g.history {
		if c.Size < g.signed.Len() {
			continue
		}
		before, _ := c.before()
		if signed, ok := all.Prove(c.Size, c.Root, before); ok {
			g.signed, g.newest = signed, c
			g.good++
		}
	}
	signed := &g.hashes.Signed
	*signed = append(*signed, make([]tlog.Hash, g.signed.Len()-int64(len(*signed)))...)
	if g.good < len(g.history) {
		g.forks()
	}
}

// list takes in the hashes kept with a checkpoint: into the first list that does not contradict them.
func (g *proof) list(c *Kept) {
	for n := 1; len(c.Leaves) > 0; n++ {
		if n == len(g.hashes.Lists) {
			g.hashes.Lists = append(g.hashes.Lists, make([]tlog.Hash, g.end))
		}
		place := g.hashes.Lists[n][c.from():c.Size]
		if at := slices.IndexFunc(place, func(h tlog.Hash) bool { return h != tlog.Hash{} }); at < 0 || slices.Equal(place, c.Leaves) {
			copy(place, c.Leaves)
			c.Leaves = place // they are kept once
			return
		}
	}
}

// forks names the checkpoints whose signed root is not that of the signed leaves: their key has
// signed two histories.
func (g *proof) forks() {
	var proven tree
	for _, c := range slices.SortedStableFunc(slices.Values(g.history), func(a, b *Kept) int { return cmp.Compare(a.Size, b.Size) }) {
		if c.Size > g.signed.Len() { // it was named as unproven; its own hashes may tell more
			if at, sound := c.at(g.signed.Len()); sound && at.Root() != g.signed.Root() {
				g.forked = append(g.forked, c.Seq)
			}
			continue
		}
		more := g.hashes.Signed[proven.Len():c.Size]
		if slices.Contains(more, tlog.Hash{}) {
			return
		}
		if proven = proven.With(more...); proven.Root() != c.Root && c.Seq > 0 {
			g.forked = append(g.forked, c.Seq) // the one next to the key, without a number, has words of its own
		}
	}
}

// compare names the differences between the entries and the signed ones, the missing ones under
// no signed root, and those of which neither the checkpoints' hashes nor the entries give the signed
// root. Runs of one kind are one problem.
func (g *proof) compare() (problems []tlogproof.Finding) {
	found := func(index int64, kind, detail string) {
		problems = tlogproof.Adjoin(problems, tlogproof.Finding{Kind: kind, From: index, To: index, Detail: detail})
	}
	leaves, signed := g.hashes.Lists[0], g.hashes.Signed
	tlogproof.CompareRuns([]tlogproof.Run{{First: g.base, Got: leaves, Signed: signed}}, found)
	for i := g.end; i < int64(len(leaves)); i++ {
		if leaves[i] == (tlog.Hash{}) {
			found(g.base+i, tlogproof.KindMissing, neverSigned)
		}
	}
	const unproven, detail = tlogproof.KindUnproven, "neither they nor the hashes kept with the checkpoints give the signed root"
	for i, h := range signed {
		if h == (tlog.Hash{}) {
			found(g.base+int64(i), unproven, detail)
		}
	}
	if proven := g.signed.Len(); proven < g.end {
		problems = tlogproof.Adjoin(problems, tlogproof.Finding{Kind: unproven, From: g.base + proven, To: g.base + g.end - 1, Detail: detail})
	}
	return problems
}

// proveAll proves the generations, the oldest first, and returns their keys by base.
func (x *examination) proveAll() (keys map[int64]string) {
	keys = map[int64]string{}
	bases := x.bases()
	var entries []tlogproof.Finding
	for i, base := range bases {
		end := int64(len(x.leaves))
		if i+1 < len(bases) {
			end = min(end, bases[i+1])
		}
		g := &proof{base: base, hashes: tlogproof.LeafLists{Lists: [][]tlog.Hash{x.leaves[min(base, end):end]}}}
		public := x.keyOf(bases, i)
		keys[base] = public
		for i := range x.history {
			switch c := &x.history[i]; {
			case c.Base == base && c.PublicKey == public:
				g.history = append(g.history, c)
			case c.Base == base:
				x.checkpointProblem(c.Seq, "it is signed with another key: "+c.PublicKey)
			}
		}
		if x.pinCounts() && x.pin.Base == base && x.pin.PublicKey == public && (len(g.history) == 0 || x.pin.Size > g.history[len(g.history)-1].Size) {
			g.history = append(g.history, x.pin)
		}
		g.prove()
		entries = append(entries, g.compare()...)
		slices.Sort(g.forked)
		for _, seq := range g.forked {
			x.checkpointProblem(seq, twoHistories)
		}
		x.report.Checkpoints += g.good
		x.signed, x.best, x.end, x.proven = g.signed, g.newest, g.end, append(x.proven, g.hashes.Signed)
		made := x.generation(g)
		x.gens = append(x.gens, made)
		x.recover(made, g.hashes.Lists[0], g.hashes.Signed)
	}
	x.report.Problems = append(entries, x.report.Problems...)
	return keys
}

// keyOf is the key of a generation: the one named by the next generation's first entry,
// else our own if it has signed there, else the first signer's. So nobody continues
// another's tree with a key of his own.
func (x *examination) keyOf(bases []int64, i int) string {
	if i+1 < len(bases) {
		if o := x.openings[bases[i+1]]; o.Previous != nil && o.Previous.Base == bases[i] && o.Previous.PublicKey != "" {
			return o.Previous.PublicKey
		}
	}
	first := ""
	for n, c := range append(x.history[:len(x.history):len(x.history)], x.pins()...) {
		switch isPin := n == len(x.history); {
		case c.Base != bases[i]:
		case x.key.isOwn(c.PublicKey) && (!isPin || x.marked): // a key's first pin comes before its first checkpoint
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
	return slices.Sorted(maps.Keys(bases))
}

// generation sums up a proof. The key is the newest checkpoint's, or the one named by
// the opening entry.
func (x *examination) generation(g *proof) Generation {
	made := Generation{Base: g.base, Size: g.signed.Len(), Root: g.signed.Root()}
	if n := len(g.history); n > 0 {
		made.PublicKey = g.history[n-1].PublicKey
	} else if o, ok := x.openings[g.base]; ok {
		made.PublicKey = o.Key
	} else if g.base == 0 {
		made.PublicKey = x.key.public
	}
	if verifier, err := note.NewVerifier(made.PublicKey); err == nil {
		made.Origin = verifier.Name()
	}
	return made
}
