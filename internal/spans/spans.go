// Package spans calculates with runs of positions.
package spans

// Span is a run of positions, both ends included.
type Span[T int64 | uint64] struct{ From, To T }

// Without returns the rest of all after taken is removed.
func Without[T int64 | uint64](all []Span[T], taken Span[T]) []Span[T] {
	var left []Span[T]
	for _, s := range all {
		if taken.To < s.From || s.To < taken.From {
			left = append(left, s)
			continue
		}
		if s.From < taken.From {
			left = append(left, Span[T]{s.From, taken.From - 1})
		}
		if taken.To < s.To {
			left = append(left, Span[T]{taken.To + 1, s.To})
		}
	}
	return left
}
