package ingest

import (
	"net/http"
	"sync/atomic"
)

// budget bounds the memory of all pushes together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// lease is the share of one push in a budget.
type lease struct {
	from *budget
	held int64
}

var errMemory = &refusal{
	status: http.StatusTooManyRequests, reason: "overload", retryAfter: retryOverload, hangUp: true,
	text: "too many bytes in flight",
}

// grow makes the lease at least n bytes. It never waits for other pushes, as they may be
// waiting for this one. A push larger than the whole budget is too large: trying again
// would not help.
func (l *lease) grow(n int64) error {
	more := n - l.held
	if more <= 0 {
		return nil
	}
	if n > l.from.limit {
		return tooLarge("the push takes more memory than the %d bytes for all pushes together", l.from.limit)
	}
	if l.from.used.Add(more) > l.from.limit {
		l.from.used.Add(-more)
		return errMemory
	}
	l.held = n
	return nil
}

// shrink gives back all above n bytes.
func (l *lease) shrink(n int64) {
	if less := l.held - n; less > 0 {
		l.from.used.Add(-less)
		l.held = n
	}
}

func (l *lease) release() { l.shrink(0) }
