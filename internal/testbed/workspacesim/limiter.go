package workspacesim

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// limiter is the API's request rate limit.
type limiter struct{ bucket *rate.Limiter }

func newLimiter(perSecond float64) *limiter {
	l := &limiter{bucket: rate.NewLimiter(rate.Inf, 1)}
	l.set(perSecond)
	return l
}

// set changes the limit, in requests a second with a burst of one second's
// worth; 0 is no limit.
func (l *limiter) set(perSecond float64) {
	if perSecond <= 0 {
		l.bucket.SetLimit(rate.Inf)
		return
	}
	l.bucket.SetBurst(max(1, int(math.Ceil(perSecond))))
	l.bucket.SetLimit(rate.Limit(perSecond))
}

// wait takes a token and returns 0, or the time until there is one.
func (l *limiter) wait() time.Duration {
	r := l.bucket.Reserve()
	d := r.Delay()
	if d > 0 {
		r.Cancel()
	}
	return d
}
