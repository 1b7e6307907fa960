package routing

import (
	"bytes"

	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
)

// The actions on a value. The lower one takes more of it.
const (
	actionRemove uint8 = iota
	actionHash
)

// node is a place where pointers end or pass through.
type node struct {
	ends     bool
	action   uint8            // if ends is set
	pointers []int            // the numbers of the pointers that end here
	members  map[string]*node // by folded name
	elements map[int]*node    // the children whose names are an index
	every    *node            // "*"
}

// add adds the pointer with this number.
func (n *node) add(p jsonscan.Pointer, action uint8, number int) {
	for name, index := range p.Tokens {
		n = n.step(name, index)
	}
	n.end(action, number)
}

func (n *node) end(action uint8, numbers ...int) {
	if !n.ends || action < n.action {
		n.ends, n.action = true, action
	}
	n.pointers = append(n.pointers, numbers...)
}

// step returns the node after one step, and makes it if it is missing.
func (n *node) step(name string, index int) *node {
	if name == "*" {
		if n.every == nil {
			n.every = &node{}
		}
		return n.every
	}
	name = fold(name)
	next := n.members[name]
	if next == nil {
		if n.members == nil {
			n.members, n.elements = map[string]*node{}, map[int]*node{}
		}
		next = &node{}
		n.members[name] = next
	}
	if index >= 0 {
		n.elements[index] = next
	}
	return next
}

// spread adds the children of "*" to each place with a name, so that a value has one node, and
// no branches have to be followed at the same time.
func (n *node) spread() {
	for _, next := range n.members {
		next.merge(n.every)
		next.spread()
	}
	if n.every != nil {
		n.every.spread()
	}
}

func (n *node) merge(from *node) {
	if from == nil {
		return
	}
	if from.ends {
		n.end(from.action, from.pointers...)
	}
	if from.every != nil {
		n.step("*", -1).merge(from.every)
	}
	for name, next := range from.members {
		to := n.step(name, -1)
		for index, same := range from.elements {
			if same == next {
				n.elements[index] = to
			}
		}
		to.merge(next)
	}
}

// element returns the node of an array's element, or nil.
func (n *node) element(index int) *node {
	if n == nil {
		return nil
	}
	if next := n.elements[index]; next != nil {
		return next
	}
	return n.every
}

// member returns the node of a member by its folded name, or nil.
func (n *node) member(folded []byte) *node {
	if n == nil {
		return nil
	}
	if next := n.members[string(folded)]; next != nil {
		return next
	}
	return n.every
}

// named returns the nodes of a member by its folded name; either may be nil. A name with dots
// is also a path, as in flat documents: user.email is the member email of user.
func (n *node) named(folded []byte) (direct, flat *node) {
	direct = n.member(folded)
	if n == nil || bytes.IndexByte(folded, '.') < 0 {
		return direct, nil
	}
	var ended *node
	flat = n
	for rest, more := folded, true; more && flat != nil; {
		var step []byte
		step, rest, more = bytes.Cut(rest, []byte{'.'})
		if flat = flat.member(step); flat != nil && flat.ends {
			ended = stronger(ended, flat)
		}
	}
	if ended != nil {
		flat = ended
	}
	return direct, flat
}

// stronger returns the one of two nodes that takes more of a value, or nil if neither ends and
// both lead on.
func stronger(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil || a == b:
		return a
	case a.ends && (!b.ends || a.action <= b.action):
		return a
	case b.ends:
		return b
	}
	return nil
}

// note marks in seen the pointers that end at n or below it.
func (n *node) note(seen []bool) {
	if n == nil {
		return
	}
	for _, number := range n.pointers {
		seen[number] = true
	}
	for _, next := range n.members {
		next.note(seen)
	}
	n.every.note(seen)
}

// doomed reports whether a value at n is removed, and not hashed or searched.
func (n *node) doomed() bool { return n != nil && n.ends && n.action == actionRemove }
