package verify

import (
	"bytes"
	"cmp"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// claim is an event's word on one entry of a log.
type claim struct {
	n          int64 // the entry's leaf
	leaf, root tlog.Hash
	// bare: it came without attributes. Nobody can tell such an event from a pushed one that
	// imitates it, except by the signed root.
	bare bool
	// wrong is why its content or its attributes are not those of the leaf.
	wrong string
	// omitted: it gives the leaf's hash only, and nothing vouches for its other members.
	omitted bool
	name    string // of its id, before the index
	fact    *fact
}

func compareClaims(a, b *claim) int {
	order := func(bare bool) int {
		if bare {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.n, b.n), bytes.Compare(a.leaf[:], b.leaf[:]), bytes.Compare(a.root[:], b.root[:]),
		cmp.Compare(order(a.bare), order(b.bare)), cmp.Compare(a.wrong, b.wrong), cmp.Compare(a.name, b.name))
}

// claims are those of one log. Their memory is that of the input: an event may claim any index.
type claims struct {
	list []claim
	kept int // how many there were when repeated ones were last left out
}

func (c *claims) add(one claim) {
	c.list = append(c.list, one)
	if len(c.list) > 2*c.kept+lineBatch {
		c.sort()
	}
}

// sort puts the claims in order, and leaves repeated ones out.
func (c *claims) sort() {
	slices.SortFunc(c.list, func(a, b claim) int { return compareClaims(&a, &b) })
	c.list = slices.CompactFunc(c.list, func(a, b claim) bool { return compareClaims(&a, &b) == 0 && a.omitted == b.omitted })
	c.kept = len(c.list)
}

// strip treats all claims as bare bodies.
func (c *claims) strip() {
	for i := range c.list {
		c.list[i].bare = true
	}
}

// groups are the claims on one entry each, in order.
func groups(list []claim, visit func(group []claim)) {
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && list[end].n == list[i].n {
			end++
		}
		visit(list[i:end])
		i = end
	}
}

// growth grows a log's tree from claims. Where several claim an entry, those count that lead to
// the next signed root: each states the root of the tree up to its entry, so a wrong one is
// found out by the first entry after it at the latest.
type growth struct {
	settled     []node // of the proven entries
	root        tlog.Hash
	reached     int64   // the first entry that nobody claims, or no claim continues the tree with
	broken      bool    // the latter
	covered     int64   // the largest signed tree
	signedTwice []int64 // sizes of proven trees with another signed root
}

// node is an entry's leaf, and the root of the tree up to it.
type node struct{ leaf, root tlog.Hash }

// path is one way to grow the tree from the newest proven entry on.
type path struct {
	edge  proof.Edge
	newer *step
}

type step struct {
	node

	before *step
}

// mostPaths bounds the ways to be followed at once.
const mostPaths = 1024

// grow follows sorted claims. The checkpoints are those of the log, the smallest tree first.
func (g *growth) grow(list []claim, checkpoints []signed) {
	var unlike []int64
	if n := len(checkpoints); n > 0 {
		g.covered = checkpoints[n-1].size
	}
	paths, ended := []path{{}}, false
	groups(list, func(group []claim) {
		if ended = ended || group[0].n != g.reached; ended {
			return
		}
		longer := extend(paths, group)
		if g.broken = len(longer) == 0; g.broken {
			ended = true
			return
		}
		paths, g.reached = longer, g.reached+1
		for ; len(checkpoints) > 0 && checkpoints[0].size <= g.reached; checkpoints = checkpoints[1:] {
			c := checkpoints[0]
			if c.size < g.reached { // an empty tree's
				continue
			}
			at := slices.IndexFunc(paths, func(p path) bool {
				return p.newer == nil && g.root == c.root || p.newer != nil && p.newer.root == c.root
			})
			if at < 0 {
				unlike = append(unlike, c.size)
				continue
			}
			paths = paths[at : at+1]
			g.settle(&paths[0], c.root)
		}
	})
	for _, size := range unlike {
		if size > int64(len(g.settled)) {
			g.broken, g.reached = true, int64(len(g.settled))
			break
		}
		g.signedTwice = append(g.signedTwice, size)
	}
}

// settle takes a path's entries for proven: a signed root is theirs.
func (g *growth) settle(p *path, root tlog.Hash) {
	from := len(g.settled)
	for s := p.newer; s != nil; s = s.before {
		g.settled = append(g.settled, s.node)
	}
	slices.Reverse(g.settled[from:])
	g.root, p.newer = root, nil
}

// extend gives the paths that are longer by one of the claims on the next entry. A claim without
// a root, as the relay makes where damage hides the tree, counts only where no other leads on.
func extend(paths []path, group []claim) (longer []path) {
	for _, rooted := range []bool{true, false} {
		for _, p := range paths {
			for i := range group {
				c := &group[i]
				repeats := i > 0 && group[i-1].leaf == c.leaf && group[i-1].root == c.root
				if repeats || rooted == (c.root == tlog.Hash{}) || len(longer) == mostPaths {
					continue
				}
				e := p.edge.With(c.leaf)
				if root := e.Root(); !rooted || root == c.root {
					longer = append(longer, path{e, &step{node{c.leaf, root}, p.newer}})
				}
			}
		}
		if len(longer) > 0 {
			break
		}
	}
	return longer
}
