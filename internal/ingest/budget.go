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
// back: those may be waiting for it.
func (l *lease) grow(n int64) error {
	more := n - l.held
	if more <= 0 {
		return nil
	}
	if l.from.used.Add(more) > l.from.limit {
		l.from.used.Add(-more)
		return errMemory
	}
	l.held = n
	return nil
}

func (l *lease) release() {
	l.from.used.Add(-l.held)
	l.held = 0
}
