package journal

import (
	"math"
	"sync"
	"time"
)

const (
	// fillingOver is the time over which the rate is smoothed: a burst of a minute is no
	// trend.
	fillingOver = 5 * time.Minute
	// Closer looks than fillingApart tell more of the trims than of the rate.
	fillingApart = 10 * time.Second
)

// filling is how fast undelivered events fill the budget. Delivered events do not count: they
// give way.
type filling struct {
	mu    sync.Mutex
	at    time.Time // of the last look; zero before the first
	bytes int64     // undelivered then
	rate  float64   // bytes a second; NaN before the second look
}

// look notes the undelivered bytes, right after a trim has told what is delivered.
func (f *filling) look(now time.Time, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := now.Sub(f.at)
	present := float64(bytes-f.bytes) / since.Seconds()
	switch {
	case f.at.IsZero():
		f.rate = math.NaN()
	case since < fillingApart:
		return
	case math.IsNaN(f.rate):
		f.rate = present
	default:
		f.rate += (present - f.rate) * (1 - math.Exp(-since.Seconds()/fillingOver.Seconds()))
	}
	f.at, f.bytes = now, bytes
}

// secondsToFull is the time until undelivered events fill a budget of so many bytes: +Inf
// while they do not grow, and NaN before two looks.
func (f *filling) secondsToFull(budget int64) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.at.IsZero() || math.IsNaN(f.rate):
		return math.NaN()
	case f.bytes >= budget:
		return 0
	case f.rate <= 0:
		return math.Inf(1)
	}
	return float64(budget-f.bytes) / f.rate
}
