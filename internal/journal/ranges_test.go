package journal

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Ranges are compared with a set of positions.
func TestRangesAreASetOfPositions(t *testing.T) {
	t.Parallel()
	const size = 24
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var r ranges
		set := map[store.Pos]bool{}
		for range 1 + random.IntN(8) {
			from := store.Pos(1 + random.IntN(size))
			to := min(size, from+store.Pos(random.IntN(6)))
			missing := 0
			for _, s := range r.missing(from, to) {
				require.LessOrEqual(t, s.from, s.to)
				for pos := s.from; pos <= s.to; pos++ {
					require.False(t, set[pos])
					missing++
				}
			}
			have := int(r.count(from, to)) //nolint:gosec // it is small
			require.Equal(t, int(to-from)+1, have+missing)
			r = r.with(from, to)
			for pos := from; pos <= to; pos++ {
				set[pos] = true
			}
			require.EqualValues(t, len(set), r.count(0, ^store.Pos(0)))
			for i := 1; i < len(r); i++ {
				require.Greater(t, r[i].from, r[i-1].to+1, "runs that touch are one")
			}
		}
	}
}

func TestTheFuseBlows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damaged  store.Pos
		readable uint64
		held     bool
	}{
		"one of few":          {1, 3, false},
		"three of few":        {3, 96, false},
		"one in a hundred":    {1, 99, false},
		"two in a hundred":    {2, 98, true},
		"one per cent":        {2, 198, false},
		"ten of many":         {10, 100_000, false},
		"eleven of many":      {11, 100_000, true},
		"nothing is readable": {30_850, 0, true},
	} {
		f := newFuse(QuarantineOptions{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Fuse: true})
		f.note("log", 101, 100+c.damaged)
		f.note("another", 1, 1000)
		f.judge("log", c.readable)
		assert.Equal(t, c.held, f.state().Held, name)
		assert.Equal(t, c.held, testutil.ToFloat64(f.blown) == 1, name)
		assert.Equal(t, c.held, holds(f, 50, 101), name)
		assert.False(t, holds(f, 1, 100), "%s: what lies before it is given", name)
		f.accept(100 + c.damaged)
		assert.False(t, holds(f, 50, 101), name)
		f.note("log", 50, 60)
		f.judge("log", c.readable)
		assert.False(t, f.state().Held, "%s: older damage is accepted too", name)
	}
}

func holds(f *fuse, from, to store.Pos) bool {
	_, held := f.holds(from, to)
	return held
}
