package audit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWithoutLeavesExactlyTheOthers(t *testing.T) {
	t.Parallel()
	const size = 8 // of the world: every span within it is taken from two others
	all := []span{{From: 0, To: 2}, {From: 4, To: 7}}
	for from := int64(0); from < size; from++ {
		for to := from; to < size; to++ {
			taken := span{From: from, To: to}
			left := cutOut(all, taken)
			for at := int64(0); at < size; at++ {
				want := 0
				if at != 3 && (at < from || at > to) {
					want = 1
				}
				assert.Equal(t, want, covered(left, at), "%d in %v, without %v", at, left, taken)
			}
		}
	}
}

func covered(all []span, at int64) (n int) {
	for _, s := range all {
		if s.From <= at && at <= s.To {
			n++
		}
	}
	return n
}
