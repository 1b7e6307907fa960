package received

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// The buckets of lateness: one below 2^firstBit ns (8 ms), then four for each doubling,
// up to 2^lastBit ns (13 days). So a quantile is right within an eighth.
const (
	firstBit = 23
	lastBit  = 50
	parts    = 4 // of a doubling
	buckets  = 1 + parts*(lastBit-firstBit)
)

// Lateness is a histogram of arrival minus event time. The zero value is empty.
type Lateness struct {
	counts [buckets]uint32
	sum    float64 // seconds
}

// unbelievable is the lateness of an event without a real time, as one of 1970.
const unbelievable = 365 * 24 * time.Hour

// Add counts an event, unless its lateness is unbelievable. A negative one, by a sender's
// clock ahead, counts as 0.
func (l *Lateness) Add(late time.Duration) {
	if late > unbelievable {
		return
	}
	l.counts[bucketOf(late)]++
	l.sum += max(0, late).Seconds()
}

func bucketOf(late time.Duration) int {
	if late < 1<<firstBit {
		return 0
	}
	high := bits.Len64(uint64(late)) - 1
	return min(1+(high-firstBit)*parts+int(late>>(high-2))&(parts-1), buckets-1)
}

// bounds returns the ends of a bucket, in seconds.
func bounds(i int) (low, high float64) {
	if i == 0 {
		return 0, math.Ldexp(1e-9, firstBit)
	}
	part := float64(parts + (i-1)%parts)
	unit := math.Ldexp(1e-9, firstBit-2+(i-1)/parts)
	return part * unit, (part + 1) * unit
}

// window holds the lateness of the last ten to twelve minutes, in slices.
type window struct {
	slices [6]Lateness
	at     [6]int64 // the number of each slice, from 1
	latest int64
}

const slice = 2 * time.Minute

// ForgetLateness empties the window of lateness: the sender's clock was wrong until now.
func (e *Environment) ForgetLateness() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lateness = window{latest: e.lateness.latest}
}

func (w *window) slice(elapsed time.Duration) int64 {
	return max(w.latest, int64(elapsed/slice)+1)
}

func (w *window) add(elapsed time.Duration, l *Lateness) {
	w.latest = w.slice(elapsed)
	i := w.latest % int64(len(w.slices))
	if w.at[i] != w.latest {
		w.at[i], w.slices[i] = w.latest, Lateness{}
	}
	for j, n := range &l.counts {
		w.slices[i].counts[j] += n
	}
}

// quantiles returns the percentiles 50, 90 and 99 in seconds.
func (w *window) quantiles(elapsed time.Duration) (q [3]float64) {
	var sums [buckets]float64
	total, now := 0.0, w.slice(elapsed)
	for i, at := range w.at {
		if at <= now-int64(len(w.slices)) {
			continue
		}
		for j, n := range &w.slices[i].counts {
			sums[j] += float64(n)
			total += float64(n)
		}
	}
	for i, p := range [...]float64{.5, .9, .99} {
		q[i] = quantile(&sums, p*total)
	}
	return q
}

// quantile finds the value with rank events below it, and interpolates within its bucket.
// It is NaN without events.
func quantile(sums *[buckets]float64, rank float64) float64 {
	for i, n := range sums {
		if n > 0 && rank <= n {
			low, high := bounds(i)
			return low + (high-low)*rank/n
		}
		rank -= n
	}
	return math.NaN()
}

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
