package spans_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/spans"
)

func TestWithoutLeavesExactlyTheOthers(t *testing.T) {
	t.Parallel()
	const size = 8 // of the world: every span within it is taken from two others
	all := []spans.Span[uint64]{{From: 0, To: 2}, {From: 4, To: 7}}
	for from := uint64(0); from < size; from++ {
		for to := from; to < size; to++ {
			taken := spans.Span[uint64]{From: from, To: to}
			left := spans.Without(all, taken)
			for at := uint64(0); at < size; at++ {
				want := 0
				if at != 3 && (at < from || at > to) {
					want = 1
				}
				assert.Equal(t, want, count(left, at), "%d in %v, without %v", at, left, taken)
			}
		}
	}
}

func count(all []spans.Span[uint64], at uint64) (n int) {
	for _, s := range all {
		if s.From <= at && at <= s.To {
			n++
		}
	}
	return n
}
