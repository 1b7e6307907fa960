package routing

import (
	"bytes"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
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
	tags     bool             // a text here has tags, see tagsMember
	pointers []int            // the numbers of the pointers that end here
	members  map[string]*node // by folded name
	elements map[int]*node    // the children whose names are an index
	every    *node            // "*"
}

// add adds the pointer with this number.
func (n *node) add(p jsontext.Pointer, action uint8, number int) {
	for name, index := range p.Tokens {
		n = n.step(name, index)
	}
	if !n.ends || action < n.action {
		n.ends, n.action = true, action
	}
	n.pointers = append(n.pointers, number)
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

// places are all nodes of one value: several pointers may lead to it, by its name, by "*" and
// by a name with dots.
type places []*node

// few is memory for the places of one value, so that reading a body allocates nothing.
type few [4]*node

// with returns p with more nodes, each of them once, and without nil.
func (p places) with(more ...*node) places {
	for _, n := range more {
		if n != nil && !slices.Contains(p, n) {
			p = append(p, n)
		}
	}
	return p
}

// action returns the action on a value at p; ends is false if no pointer ends there.
func (p places) action() (action uint8, ends bool) {
	for _, n := range p {
		if n.ends && (!ends || n.action < action) {
			action, ends = n.action, true
		}
	}
	return action, ends
}

// removed reports whether a value at p is removed, and not hashed or searched.
func (p places) removed() bool {
	action, ends := p.action()
	return ends && action == actionRemove
}

// element appends the places of an array's element.
func (p places) element(next places, index int) places {
	for _, n := range p {
		next = next.with(n.elements[index], n.every)
	}
	return next
}

// member appends the places of a member by its folded name.
func (p places) member(next places, folded []byte) places {
	for _, n := range p {
		next = next.with(n.members[string(folded)], n.every)
	}
	return next
}

// named appends the places of a member by its folded name. A name with dots is also a path, as
// in flat documents: user.email is the member email of user, and a part of user.
func (p places) named(next places, folded []byte) places {
	next = p.member(next, folded)
	if bytes.IndexByte(folded, '.') < 0 {
		return next
	}
	for rest, more := folded, true; more && len(p) > 0; {
		var step []byte
		step, rest, more = bytes.Cut(rest, []byte{'.'})
		p = p.member(nil, step)
		for _, n := range p {
			if n.ends || !more {
				next = next.with(n)
			}
		}
	}
	return next
}
