package received

import (
	"math"
	"slices"
	"time"
)

// Span counts the events of a span of time as they arrive, however late. It goes by the
// sender's times and the histogram of lateness: each end is right within an eighth of the time
// passed since, where the sender's clock is.
type Span struct {
	page     *Environment
	from, to time.Time // no end where to is zero
	count    float64
}

// Count counts the events of a time span among those arriving from now on; without end for a
// zero to. The caller bounds the number of spans, and stops each.
func (e *Environment) Count(from, to time.Time) *Span {
	s := &Span{page: e, from: from, to: to}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spans = append(e.spans, s)
	return s
}

// Set moves the ends, and keeps the count.
func (s *Span) Set(from, to time.Time) {
	s.page.mu.Lock()
	defer s.page.mu.Unlock()
	s.from, s.to = from, to
}

// Stop ends the counting.
func (s *Span) Stop() {
	s.page.mu.Lock()
	defer s.page.mu.Unlock()
	s.page.spans = slices.DeleteFunc(s.page.spans, func(other *Span) bool { return other == s })
}

// Events is the estimated number of events so far.
func (s *Span) Events() int64 {
	s.page.mu.Lock()
	defer s.page.mu.Unlock()
	return int64(math.Round(s.count))
}

func (s *Span) add(now time.Time, l *Lateness) {
	least, most := math.Inf(-1), now.Sub(s.from).Seconds()
	if !s.to.IsZero() {
		least = now.Sub(s.to).Seconds()
	}
	for i, n := range &l.counts {
		low, high := bounds(i)
		if n == 0 || low >= most {
			continue
		}
		s.count += float64(n) * max(0, min(high, most)-max(low, least)) / (high - low)
	}
}
