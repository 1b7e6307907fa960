package datadir

import "github.com/auditrelay/auditrelay/internal/spans"

// Span is a run of positions, both ends included.
type Span = spans.Span[uint64]

// Uncovered returns the gaps in a stream not named in the quarantine.
func Uncovered(gaps []Span, known []Quarantined, stream string) []Span {
	var left []Span
	for _, gap := range gaps {
		rest := []Span{gap}
		for _, q := range known {
			if q.Stream == stream && q.Loss == "" { // else other records have those positions
				rest = spans.Without(rest, Span{From: q.From, To: q.To})
			}
		}
		left = append(left, rest...)
	}
	return left
}
