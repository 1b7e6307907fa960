package proof

import (
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// HashSource has the hashes of a log's tree, from one place or more. Nothing vouches for them.
type HashSource interface {
	// Words are the possible hashes over the leaves [from, to), which are a node of some tree of
	// RFC 6962: the likeliest first, without zero hashes and repetitions. parts says whether the
	// two halves are to be asked for as well.
	Words(from, to int64) (words []tlog.Hash, parts bool)
	// Proven is told that a signed root proves the hash over these leaves. With whole, each part
	// of them has one word, which is right too.
	Proven(from, to int64, hash tlog.Hash, whole bool)
}

// Tree is the tree of a log, as far as it is known.
type Tree struct {
	source HashSource
	// nodes are the proven parts that larger trees begin with, and parts after them that may be
	// asked for again. Where all words agree they are few.
	nodes map[part]node
	done  int64 // the leaves before it are in those proven parts
}

// NewTree makes a tree of which nothing is proven.
func NewTree(s HashSource) *Tree { return &Tree{source: s, nodes: map[part]node{}} }

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
func largest(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

// node is what is known of a part.
type node struct {
	words []tlog.Hash
	parts bool // it has halves
	whole bool // it is full, and each part has one word, which is not proven yet
}

// Prove takes in a signed root, and reports whether the hashes lead to it; then the edge of the
// proven tree is returned too, or the empty one where the source does not have the last leaves.
// Hints are the edge of a smaller tree, as it is kept with the root: it serves where the leaves
// before are lost. Roots come in the order of their sizes. One that comes out of order may stay
// unproven, and nothing is proven wrongly.
func (t *Tree) Prove(size int64, root tlog.Hash, hints Edge) (signed Edge, ok bool) {
	if size == 0 || size < t.done {
		return signed, size == 0 && root == signed.Root()
	}
	all := part{0, size}
	if !slices.Contains(t.look(all).words, root) {
		t.hint(hints, size)
		if !slices.Contains(t.look(all).words, root) {
			return signed, false
		}
	}
	full := t.settle(all, root)
	clear(t.nodes)
	t.done = 0
	for _, h := range full {
		p := part{t.done, t.done + largest(size-t.done)}
		t.nodes[p], t.done = node{words: []tlog.Hash{h}}, p.to
	}
	signed, _ = EdgeOf(size, full)
	return signed, true
}

// look is node, and keeps it.
func (t *Tree) look(p part) node {
	n := t.node(p)
	if p.isFull() {
		t.nodes[p] = n
	}
	return n
}

// node gives what is known of a part. Its halves are kept if they will be asked for again.
func (t *Tree) node(p part) node {
	if n, kept := t.nodes[p]; kept {
		return n
	}
	words, parts := t.source.Words(p.from, p.to)
	if !parts {
		return node{words: words, whole: len(words) == 1 && p.isFull()}
	}
	left, right := p.halves()
	l, r := t.look(left), t.look(right)
	n := join(&l, &r, words)
	if n.whole = n.whole && p.isFull(); n.whole {
		delete(t.nodes, left)
		delete(t.nodes, right)
	}
	return n
}

// maxWords bounds the possible hashes of a node. Where they would be more, one of each two that are
// likely together stays.
const maxWords = 256

// join is the node over two halves, of which the source says words.
func join(l, r *node, words []tlog.Hash) node {
	n := node{parts: true, whole: l.whole && r.whole}
	if len(l.words)*len(r.words) <= maxWords {
		for i := range l.words {
			for k := range r.words {
				n.words = append(n.words, NodeHash(&l.words[i], &r.words[k]))
			}
		}
	} else {
		for i := range max(len(l.words), len(r.words)) {
			n.words = append(n.words, NodeHash(&l.words[min(i, len(l.words)-1)], &r.words[min(i, len(r.words)-1)]))
		}
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
func (t *Tree) hint(e Edge, size int64) {
	from := int64(0)
	for _, h := range e.Full() {
		p := part{from, from + largest(e.Len()-from)}
		if from = p.to; p.to > size {
			return
		}
		if p.to <= t.done { // all is known of it
			continue
		}
		if n := t.look(p); !slices.Contains(n.words, h) {
			n.words, n.whole = append(slices.Clone(n.words), h), false
			t.nodes[p] = n
			for width := 2 * (p.to - p.from); width <= largest(size); width *= 2 { // more is known of the parts around it
				delete(t.nodes, part{p.from / width * width, p.from/width*width + width})
			}
		}
	}
}

// settle takes in that a node has this hash, and finds the hashes of its halves. It returns those of
// the full parts that it consists of.
func (t *Tree) settle(p part, hash tlog.Hash) (full []tlog.Hash) {
	n := t.node(p)
	if p.to > t.done {
		t.source.Proven(p.from, p.to, hash, n.whole)
	}
	if n.parts && !n.whole {
		full = t.settleHalves(p, hash)
	}
	if p.isFull() {
		return []tlog.Hash{hash}
	}
	return full
}

func (t *Tree) settleHalves(p part, hash tlog.Hash) []tlog.Hash {
	left, right := p.halves()
	l, r := t.node(left), t.node(right)
	for i := range l.words {
		for k := range r.words {
			if NodeHash(&l.words[i], &r.words[k]) == hash {
				return append(t.settle(left, l.words[i]), t.settle(right, r.words[k])...)
			}
		}
	}
	return nil
}
