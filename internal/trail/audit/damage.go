package audit

import (
	"cmp"
	"slices"
)

// span is a run of indices, both ends included.
type span struct{ From, To int64 }

// cutOut returns the rest of all spans after taken is removed.
func cutOut(all []span, taken span) (left []span) {
	for _, s := range all {
		if taken.To < s.From || s.To < taken.From {
			left = append(left, s)
			continue
		}
		if s.From < taken.From {
			left = append(left, span{s.From, taken.From - 1})
		}
		if taken.To < s.To {
			left = append(left, span{taken.To + 1, s.To})
		}
	}
	return left
}

// namedDamage is the damage named by entries of the trail: each is named once, however
// often the trail is opened.
type namedDamage struct {
	entries, checkpoints []span
	restored             []span
	pins                 []string // details
}

func (n *namedDamage) add(problems []Problem) {
	for _, p := range problems {
		switch p.Kind {
		case "pin", "forwarded":
			n.pins = append(n.pins, p.Detail)
		case "restored":
			n.restored = append(n.restored, span{From: p.From, To: p.To})
		case "checkpoint":
			n.checkpoints = append(n.checkpoints, span{From: p.From, To: p.To})
		default:
			n.entries = append(n.entries, span{From: p.From, To: p.To})
		}
	}
}

// unnamed gives the problems without a name in the trail.
func (n *namedDamage) unnamed(problems []Problem) (left []Problem) {
	for _, p := range problems {
		known := n.entries
		switch p.Kind {
		case "key":
			left = append(left, p)
			continue
		case "pin", "forwarded":
			if !slices.Contains(n.pins, p.Detail) {
				left = append(left, p)
			}
			continue
		case "restored":
			known = n.restored
		case "checkpoint":
			known = n.checkpoints
		}
		rests := []span{{From: p.From, To: p.To}}
		for _, k := range known {
			rests = cutOut(rests, k)
		}
		for _, rest := range rests {
			p.From, p.To = rest.From, rest.To
			left = append(left, p)
		}
	}
	return left
}

// unsound are the entries without weight as a resource's state: missing ones, and ones
// unlike the signed ones. Merely unproven entries count. Adjacent runs are joined.
func unsound(problems []Problem) []span {
	var all []span
	for _, p := range problems {
		if p.isOfEntries() {
			all = append(all, span{From: p.From, To: p.To})
		}
	}
	return joined(all)
}

// joined sorts runs, and joins adjacent ones.
func joined(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	runs := all[:0]
	for _, s := range all {
		if n := len(runs); n > 0 && s.From <= runs[n-1].To+1 {
			runs[n-1].To = max(runs[n-1].To, s.To)
			continue
		}
		runs = append(runs, s)
	}
	return runs
}

// contains reports whether a sorted list of runs has index.
func contains(all []span, index int64) bool {
	i, _ := slices.BinarySearchFunc(all, index, func(s span, index int64) int { return cmp.Compare(s.To, index) })
	return i < len(all) && all[i].From <= index
}

// count is how many indices the runs have.
func count(all []span) (n int64) {
	for _, s := range all {
		n += s.To - s.From + 1
	}
	return n
}
