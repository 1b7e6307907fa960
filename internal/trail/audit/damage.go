package audit

import (
	"cmp"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
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

// namedDamage is the damage named by entries of the trail, by [kindOf]: each is named once, however
// often the trail is opened.
type namedDamage map[string][]span

// ofEntries stands for all findings about entries in the log.
const ofEntries = "entries"

// kindOf tells findings apart that may name the same numbers. Those without a number of their own
// are told apart by their details.
func kindOf(f tlogproof.Finding) string {
	switch f.Kind {
	case tlogproof.KindPin, tlogproof.KindKey, tlogproof.KindForwarded:
		return f.Detail
	case tlogproof.KindRestored, tlogproof.KindCheckpoint:
		return f.Kind
	}
	return ofEntries
}

func (n namedDamage) add(problems []tlogproof.Finding) {
	for _, p := range problems {
		n[kindOf(p)] = append(n[kindOf(p)], span{From: p.From, To: p.To})
	}
}

// unnamed gives the problems without a name in the trail.
func (n namedDamage) unnamed(problems []tlogproof.Finding) (left []tlogproof.Finding) {
	for _, p := range problems {
		left = append(left, otherThan(p, n[kindOf(p)]...)...)
	}
	return left
}

// otherThan gives the parts of a problem outside of some runs.
func otherThan(p tlogproof.Finding, runs ...span) (left []tlogproof.Finding) {
	rests := []span{{From: p.From, To: p.To}}
	for _, run := range runs {
		rests = cutOut(rests, run)
	}
	for _, rest := range rests {
		p.From, p.To = rest.From, rest.To
		left = append(left, p)
	}
	return left
}

// unsound are the entries without weight as a resource's state: missing ones, and ones
// unlike the signed ones. Merely unproven entries count. Adjacent runs are joined.
func unsound(problems []tlogproof.Finding) []span {
	var all []span
	for _, p := range problems {
		if isOfEntries(p) {
			all = append(all, span{From: p.From, To: p.To})
		}
	}
	return joined(all)
}

// spansOf are the runs of the indices in a set.
func spansOf(set map[int64]tlog.Hash) []span {
	var all []span
	for index := range set {
		all = append(all, span{index, index})
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
