package truth

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Source has the hashes of a log's tree, from one place or more. Nothing vouches for them.
type Source interface {
	// Words are the possible hashes over the leaves [from, to), which are a node of some tree of
	// RFC 6962: the likeliest first, without zero hashes and repetitions. parts says whether the
	// two halves are to be asked for as well.
	Words(from, to int64) (words []tlog.Hash, parts bool)
	// Proven is told that a signed root proves the hash over these leaves. With whole, each part
	// of them has one word, which is right too.
	Proven(from, to int64, hash tlog.Hash, whole bool)
}

// Tree is the tree of a log, as far as it is known. It keeps few nodes where all words agree.
type Tree struct {
	source Source
	nodes  map[part]node // those that may be asked for again
	seen   int64         // the largest size that was asked for
}

// NewTree makes a tree of which nothing is proven.
func NewTree(s Source) *Tree { return &Tree{source: s, nodes: map[part]node{}} }

// part is a node's leaves.
type part struct{ from, to int64 }

// isFull reports whether the number of leaves is a power of two. Such a node is the same in every
// larger tree.
func (p part) isFull() bool { return (p.to-p.from)&(p.to-p.from-1) == 0 }

// halves are the parts of a node: RFC 6962, section 2.1.
func (p part) halves() (left, right part) {
	middle := p.from + largest(p.to-p.from-1)
	return part{p.from, middle}, part{middle, p.to}
}

// largest is the largest power of two up to n, for n from 1 on.
func largest(n int64) int64 {
	width := int64(1)
	for width <= n/2 {
		width *= 2
	}
	return width
}

// node is what is known of a part.
type node struct {
	words  []tlog.Hash
	parts  bool // it has halves
	whole  bool // each part has one word
	fresh  bool // no part is proven
	proven bool // words has the signed hash alone
}

// Prove takes in a signed root, and reports whether the hashes lead to it; then the edge of the
// proven tree is returned too. Hints are the edge of a smaller tree, as it is kept with the root:
// it serves where the leaves before are lost. Roots come in the order of their sizes. One that
// comes out of order may stay unproven, and nothing is proven wrongly.
func (t *Tree) Prove(size int64, root tlog.Hash, hints proof.Edge) (signed proof.Edge, ok bool) {
	if size == 0 {
		return signed, root == signed.Root()
	}
	all := part{0, size}
	if !slices.Contains(t.look(all).words, root) {
		t.hint(hints, size)
		if !slices.Contains(t.look(all).words, root) {
			return signed, false
		}
	}
	t.settle(all, root)
	return t.edge(all), true
}

// look is node, and keeps it.
func (t *Tree) look(p part) node {
	t.seen = max(t.seen, p.to)
	n := t.node(p)
	t.keep(p, n)
	return n
}

func (t *Tree) keep(p part, n node) {
	if p.isFull() {
		t.nodes[p] = n
	}
}

// node gives what is known of a part. Its halves are kept if they will be asked for again.
func (t *Tree) node(p part) node {
	if n, kept := t.nodes[p]; kept {
		return n
	}
	words, parts := t.source.Words(p.from, p.to)
	if !parts {
		return node{words: words, whole: len(words) == 1, fresh: true}
	}
	left, right := p.halves()
	l, r := t.node(left), t.node(right)
	n := join(&l, &r, words)
	if p.isFull() && n.whole && (n.fresh || n.proven) {
		t.forget(left, right)
	} else {
		t.keep(left, l)
		t.keep(right, r)
	}
	return n
}

func (t *Tree) forget(halves ...part) {
	for _, p := range halves {
		delete(t.nodes, p)
	}
}

// maxWords bounds the possible hashes of a node. Where they would be more, one of each two that are
// likely together stays.
const maxWords = 256

// join is the node over two halves, of which the source says words.
func join(l, r *node, words []tlog.Hash) node {
	n := node{parts: true, whole: l.whole && r.whole, fresh: l.fresh && r.fresh, proven: l.proven && r.proven}
	if len(l.words)*len(r.words) <= maxWords {
		for i := range l.words {
			for k := range r.words {
				n.words = append(n.words, proof.NodeHash(&l.words[i], &r.words[k]))
			}
		}
	} else {
		for i := range max(len(l.words), len(r.words)) {
			n.words = append(n.words, proof.NodeHash(&l.words[min(i, len(l.words)-1)], &r.words[min(i, len(r.words)-1)]))
		}
	}
	if n.proven {
		return n
	}
	for _, h := range words {
		if at := slices.Index(n.words, h); at >= 0 { // two places agree
			n.words[0], n.words[at] = n.words[at], n.words[0]
		} else {
			n.words, n.whole = append(n.words, h), false
		}
	}
	return n
}

// hint adds the full parts of an edge to the possible hashes.
func (t *Tree) hint(e proof.Edge, size int64) {
	from := int64(0)
	for _, h := range e.Full() {
		p := part{from, from + largest(e.Len()-from)}
		if from = p.to; p.to > size || !t.outdate(p) {
			return
		}
		if n := t.look(p); !n.proven && !slices.Contains(n.words, h) {
			n.words, n.whole = append(slices.Clone(n.words), h), false
			t.nodes[p] = n
		}
	}
}

// outdate forgets the nodes over a part, as more will be known of the part. It reports false where
// one of them is proven: then all is known.
func (t *Tree) outdate(p part) bool {
	for {
		width := 2 * (p.to - p.from)
		p.from = p.from / width * width
		if p.to = p.from + width; p.to > t.seen {
			return true
		}
		if t.nodes[p].proven {
			return false
		}
		delete(t.nodes, p)
	}
}

// settle takes in that a node has this hash, and finds the hashes of its halves.
func (t *Tree) settle(p part, hash tlog.Hash) {
	n := t.node(p)
	if n.proven {
		return
	}
	known := n.whole && n.fresh && p.isFull()
	t.source.Proven(p.from, p.to, hash, known)
	left, right := p.halves()
	if n.parts && !known {
		t.settleHalves(left, right, hash)
	}
	n.words, n.fresh, n.proven = []tlog.Hash{hash}, false, true
	t.keep(p, n)
	if n.parts && n.whole && p.isFull() {
		t.forget(left, right)
	}
}

func (t *Tree) settleHalves(left, right part, hash tlog.Hash) {
	l, r := t.node(left), t.node(right)
	for i := range l.words {
		for k := range r.words {
			if proof.NodeHash(&l.words[i], &r.words[k]) == hash {
				t.settle(left, l.words[i])
				t.settle(right, r.words[k])
				return
			}
		}
	}
}

// edge is that of a proven tree. Where the source does not have its last leaves, it is the empty
// one.
func (t *Tree) edge(p part) proof.Edge {
	var full []tlog.Hash
	size := p.to
	for !p.isFull() && t.node(p).parts {
		left, right := p.halves()
		t.outdate(left)
		full, p = append(full, t.node(left).words[0]), right
	}
	t.outdate(p)
	e, _ := proof.EdgeOf(size, append(full, t.node(p).words[0]))
	return e
}
