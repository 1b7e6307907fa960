package proof

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// kept is a log as two places have it, with the true hashes next to it.
type kept struct {
	LeafLists

	truth         []tlog.Hash
	entries, list []tlog.Hash        // those of LeafLists
	parts         map[part]tlog.Hash // proven
	tiles         map[part]tlog.Hash // further hashes, of larger parts
	asked, told   int64              // calls for words, and leaves that were proven
}

func newKept(n int) *kept {
	k := &kept{truth: leaves(0, n), parts: map[part]tlog.Hash{}}
	k.entries, k.list = slices.Clone(k.truth), slices.Clone(k.truth)
	k.Lists = [][]tlog.Hash{k.entries, k.list}
	return k
}

func (k *kept) Words(from, to int64) ([]tlog.Hash, bool) {
	k.asked++
	words, parts := k.LeafLists.Words(from, to)
	return Distinct(append(words, k.tiles[part{from, to}])...), parts
}

func (k *kept) Proven(from, to int64, hash tlog.Hash, whole bool) {
	k.parts[part{from, to}] = hash
	if whole {
		k.told += to - from
	}
	k.LeafLists.Proven(from, to, hash, whole)
}

func leaves(from, n int) (list []tlog.Hash) {
	for i := range n {
		list = append(list, tlog.RecordHash(fmt.Appendf(nil, "entry %d", from+i)))
	}
	return list
}

func (k *kept) edge(n int64) Edge { return Edge{}.With(k.truth[:n]...) }

// oracle knows the true hashes. It says which of the signed roots the places lead to, and which
// leaves these prove.
type oracle struct {
	*kept
	hinted, proven map[part]bool
}

// leads reports whether the hash of a part can be had.
func (o *oracle) leads(p part) bool {
	if o.hinted[p] || o.proven[p] {
		return true
	}
	if p.to-p.from == 1 {
		return o.entries[p.from] == o.truth[p.from] || o.list[p.from] == o.truth[p.from]
	}
	left, right := p.halves()
	return o.leads(left) && o.leads(right)
}

// prove goes down from a proven part, as far as both halves can be had.
func (o *oracle) prove(p part) {
	o.proven[p] = true
	if p.to-p.from == 1 {
		return
	}
	if left, right := p.halves(); o.leads(left) && o.leads(right) {
		o.prove(left)
		o.prove(right)
	}
}

func (o *oracle) root(size, hint int64) bool {
	all := part{0, size}
	if !o.leads(all) {
		for from := int64(0); from < hint; {
			to := from + largest(hint-from)
			o.hinted[part{from, to}] = true
			from = to
		}
	}
	if !o.leads(all) {
		return false
	}
	o.prove(all)
	return true
}

// check proves the signed roots, each with a hint of the size next to it, or 0.
func (k *kept) check(t *testing.T, roots [][2]int64, what string) {
	t.Helper()
	o, tree := oracle{k, map[part]bool{}, map[part]bool{}}, NewTree(k)
	for p, hash := range k.tiles {
		o.hinted[p] = hash == Edge{}.With(k.truth[p.from:p.to]...).Root()
	}
	forged := Edge{}.With(leaves(5000, min(4, len(k.truth)))...)
	for _, root := range roots {
		_, ok := tree.Prove(root[0], tlog.Hash{9}, forged)
		require.False(t, ok, "a root that nothing leads to: %s", what)
		signed, ok := tree.Prove(root[0], k.edge(root[0]).Root(), k.edge(root[1]))
		require.Equal(t, o.root(root[0], root[1]), ok, "the root of %d leaves: %s", root[0], what)
		if ok {
			require.Equal(t, k.edge(root[0]), signed, what)
			again, ok := tree.Prove(root[0], k.edge(root[0]).Root(), k.edge(root[1]))
			require.True(t, ok, "the root of %d leaves, signed again: %s", root[0], what)
			require.Equal(t, signed, again, what)
		}
	}
	for i := range k.truth {
		is := tlog.Hash{}
		if i < len(k.Signed) {
			is = k.Signed[i]
		}
		if o.proven[part{int64(i), int64(i) + 1}] {
			require.Equal(t, k.truth[i], is, "leaf %d: %s", i, what)
		} else {
			require.Zero(t, is, "leaf %d: %s", i, what)
		}
	}
	for p, hash := range k.parts {
		require.Equal(t, Edge{}.With(k.truth[p.from:p.to]...).Root(), hash, "%v: %s", p, what)
	}
}

// Every combination of what may have happened to the entries and their list, of small trees, with
// every choice of signed sizes.
func TestSmallTreesOfEachDamage(t *testing.T) {
	t.Parallel()
	const n, states = 4, 9
	other := leaves(100, 2*n)
	for code := range pow(states, n) {
		for signed := 1; signed < 1<<n; signed++ {
			k := newKept(n)
			for i, rest := 0, code; i < n; i, rest = i+1, rest/states {
				k.entries[i] = []tlog.Hash{k.truth[i], {}, other[i]}[rest%3]
				k.list[i] = []tlog.Hash{k.truth[i], {}, other[n+i]}[rest/3%3]
			}
			var roots [][2]int64
			before := int64(0)
			for i := range int64(n) {
				if signed>>i&1 == 1 {
					roots = append(roots, [2]int64{i + 1, before * int64(code%2)})
					before = i + 1
				}
			}
			k.check(t, roots, fmt.Sprintf("damage %d, roots %v", code, roots))
		}
	}
}

func pow(base, n int) int {
	all := 1
	for range n {
		all *= base
	}
	return all
}

// Every order of the entries: whatever stands elsewhere, and is in no list, is not proven.
func TestSmallTreesInEachOrder(t *testing.T) {
	t.Parallel()
	const n = 4
	for code := range pow(n+1, n) { // n: it is missing
		for lost := range 1 << n {
			k := newKept(n)
			for i, rest := 0, code; i < n; i, rest = i+1, rest/(n+1) {
				k.entries[i] = append(slices.Clone(k.truth), tlog.Hash{})[rest%(n+1)]
				if lost>>i&1 == 1 {
					k.list[i] = tlog.Hash{}
				}
			}
			for _, roots := range [][][2]int64{{{4}}, {{2}, {4, 2}}, {{1}, {2, 1}, {3, 2}, {4, 3}}, {{3}}} {
				k.Signed, k.parts = nil, map[part]tlog.Hash{}
				k.check(t, roots, fmt.Sprintf("order %d, lost %b, roots %v", code, lost, roots))
			}
		}
	}
}

// Larger trees have few damaged leaves, so that all mixtures are tried.
func TestLargeTreesWithSomeDamage(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := 1 + r.IntN(200)
		k := newKept(n)
		for range r.IntN(6) {
			at := r.IntN(n)
			[][]tlog.Hash{k.entries, k.list}[r.IntN(2)][at] = []tlog.Hash{{}, leaves(1000+r.IntN(1000), 1)[0], k.truth[r.IntN(n)]}[r.IntN(3)]
		}
		k.tiles = map[part]tlog.Hash{}
		for from := int64(0); from+8 <= int64(n); from += 8 { // those that are not there, right ones, and a wrong one
			if p := (part{from, from + 8}); r.IntN(2) == 0 {
				k.tiles[p] = Edge{}.With(k.truth[p.from:p.to]...).Root()
			} else if r.IntN(30) == 0 {
				k.tiles[p] = tlog.Hash{3}
			}
		}
		var roots [][2]int64
		for size := 0; size < n; {
			before := int64(size * r.IntN(2))
			size += min(1+r.IntN(n), n-size)
			roots = append(roots, [2]int64{int64(size), before})
		}
		k.check(t, roots, fmt.Sprintf("seed %d: %d leaves, roots %v", seed, n, roots))
	}
}

// A sound log costs one look at each leaf, and next to no memory, however many roots are signed. One
// without a proof costs little more.
func TestTheCostOfManyRoots(t *testing.T) {
	t.Parallel()
	const n, each = 20_000, 20
	for name, lost := range map[string]bool{"sound": false, "its first leaf is lost": true} {
		k := newKept(n)
		if lost {
			k.entries[0], k.list[0] = tlog.Hash{1}, tlog.Hash{2}
		}
		tree, edge := NewTree(k), Edge{}
		for size := range int64(n) {
			if edge.Add(k.truth[size]); edge.Len()%each == 0 {
				_, ok := tree.Prove(edge.Len(), edge.Root(), Edge{})
				require.Equal(t, !lost, ok, name)
			}
		}
		require.Less(t, k.asked, int64(3*n+n/each*32), name)
		require.LessOrEqual(t, k.told, int64(n), name)
		if !lost {
			require.Less(t, len(tree.nodes), 100)
			require.Equal(t, k.truth, k.Signed)
		}
	}
}

// More doubts than can be tried in all mixtures are settled if one place is right as a whole.
func TestAWholePlaceDecides(t *testing.T) {
	t.Parallel()
	k := newKept(1000)
	for i := range k.entries {
		k.entries[i] = leaves(9000+i, 1)[0]
	}
	k.check(t, [][2]int64{{10}, {700}, {1000}}, "all entries are others")
}
