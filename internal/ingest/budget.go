package ingest

import (
	"net/http"
	"sync/atomic"
)

// budget bounds the memory that all pushes take together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// lease is what one push holds of a budget.
type lease struct {
	from *budget
	held int64
}

var errMemory = &refusal{
	status: http.StatusTooManyRequests, reason: "overload", retryAfter: retryOverload, hangUp: true,
	text: "too many bytes in flight",
}

// grow makes the lease at least n bytes. It does not wait for others to give
// back: those may be waiting for it. A push that would need all of the budget
// and more is too large: to try again would not help.
func (l *lease) grow(n int64) error {
	more := n - l.held
	if more <= 0 {
		return nil
	}
	if n > l.from.limit {
		return tooLarge("the push takes more memory than the %d bytes that all pushes may hold together", l.from.limit)
	}
	if l.from.used.Add(more) > l.from.limit {
		l.from.used.Add(-more)
		return errMemory
	}
	l.held = n
	return nil
}

// shrink gives back what the lease holds beyond n bytes.
func (l *lease) shrink(n int64) {
	if less := l.held - n; less > 0 {
		l.from.used.Add(-less)
		l.held = n
	}
}

func (l *lease) release() { l.shrink(0) }
