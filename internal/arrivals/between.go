package arrivals

import (
	"math"
	"time"
)

// between counts the events of a span of time as they arrive, however late.
type between struct {
	from, to time.Time // no end where to is zero; nothing is counted where from is
	count    float64
}

// CountBetween counts the events of a time span among those arriving from now on; without
// end for a zero to, and no longer for a zero from. Another from begins at 0. It goes by
// the histogram of lateness, so each end is right within an eighth of the time passed
// since.
func (e *Environment) CountBetween(from, to time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !from.Equal(e.between.from) {
		e.between.count = 0
	}
	e.between.from, e.between.to = from, to
}

func (b *between) add(now time.Time, l *Lateness) {
	if b.from.IsZero() {
		return
	}
	least, most := math.Inf(-1), now.Sub(b.from).Seconds()
	if !b.to.IsZero() {
		least = now.Sub(b.to).Seconds()
	}
	for i, n := range &l.counts {
		low, high := bounds(i)
		if n == 0 || low >= most {
			continue
		}
		b.count += float64(n) * max(0, min(high, most)-max(low, least)) / (high - low)
	}
}
