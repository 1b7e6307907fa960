package datadir

// Span is a run of positions, both ends included.
type Span struct{ From, To uint64 }

// Uncovered is what of the gaps in a stream no entry of the quarantine names.
func Uncovered(gaps []Span, known []Quarantined, stream string) []Span {
	var left []Span
	for _, gap := range gaps {
		rest := []Span{gap}
		for _, q := range known {
			if q.Stream == stream && q.Loss == "" { // else other records have those positions
				rest = without(rest, Span{q.From, q.To})
			}
		}
		left = append(left, rest...)
	}
	return left
}

func without(spans []Span, taken Span) []Span {
	var left []Span
	for _, s := range spans {
		if taken.To < s.From || s.To < taken.From {
			left = append(left, s)
			continue
		}
		if s.From < taken.From {
			left = append(left, Span{s.From, taken.From - 1})
		}
		if taken.To < s.To {
			left = append(left, Span{taken.To + 1, s.To})
		}
	}
	return left
}
