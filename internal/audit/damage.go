package audit

import (
	"cmp"
	"slices"
)

// span is a run of indices, both ends included.
type span struct{ from, to int64 }

// namedDamage is what entries of the trail name already, so that each damage is
// named once, however often the trail is opened.
type namedDamage struct {
	entries, checkpoints []span
	pins                 []string // details
}

func (n *namedDamage) add(problems []Problem) {
	for _, p := range problems {
		switch p.Kind {
		case "pin":
			n.pins = append(n.pins, p.Detail)
		case "checkpoint":
			n.checkpoints = append(n.checkpoints, span{p.From, p.To})
		default:
			n.entries = append(n.entries, span{p.From, p.To})
		}
	}
}

// unnamed gives what of the problems is not named yet.
func (n *namedDamage) unnamed(problems []Problem) (left []Problem) {
	for _, p := range problems {
		known := n.entries
		switch p.Kind {
		case "key":
			left = append(left, p)
			continue
		case "pin":
			if !slices.Contains(n.pins, p.Detail) {
				left = append(left, p)
			}
			continue
		case "checkpoint":
			known = n.checkpoints
		}
		for _, rest := range without(span{p.From, p.To}, known) {
			p.From, p.To = rest.from, rest.to
			left = append(left, p)
		}
	}
	return left
}

// without gives what is left of whole.
func without(whole span, taken []span) []span {
	left := []span{whole}
	for _, t := range taken {
		var next []span
		for _, s := range left {
			if t.to < s.from || s.to < t.from {
				next = append(next, s)
				continue
			}
			if s.from < t.from {
				next = append(next, span{s.from, t.from - 1})
			}
			if t.to < s.to {
				next = append(next, span{t.to + 1, s.to})
			}
		}
		left = next
	}
	return left
}

// unsound are the entries that do not count as a resource's state: those that are
// not there, or not what was signed. What is only unproven counts. Runs that touch
// are joined.
func unsound(problems []Problem) []span {
	var all []span
	for _, p := range problems {
		if p.Kind != "pin" && p.Kind != "key" && p.Kind != "checkpoint" && p.Kind != "unproven" {
			all = append(all, span{p.From, p.To})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	joined := all[:0]
	for _, s := range all {
		if n := len(joined); n > 0 && s.from <= joined[n-1].to+1 {
			joined[n-1].to = max(joined[n-1].to, s.to)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// contains reports whether a sorted list of runs has index.
func contains(spans []span, index int64) bool {
	i, _ := slices.BinarySearchFunc(spans, index, func(s span, index int64) int { return cmp.Compare(s.to, index) })
	return i < len(spans) && spans[i].from <= index
}

// count is how many indices the runs have.
func count(spans []span) (n int64) {
	for _, s := range spans {
		n += s.to - s.from + 1
	}
	return n
}
