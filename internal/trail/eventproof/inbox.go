package eventproof

import (
	"sync"

	"github.com/auditrelay/auditrelay/internal/journal"
)

const (
	// wakeAt is how many records wait before the keeper is woken, and mostWaiting how many
	// wait at all: the keeper reads the others from the journal.
	wakeAt      = 1024
	mostWaiting = 16 * wakeAt
	// The keeper is woken once the waiting records have this part of a span's events, too.
	wakePart = 8
)

// inbox holds the records noted by commits. It is safe for concurrent use.
type inbox struct {
	events int           // of a span
	wake   chan struct{} // of one place

	mu      sync.Mutex
	waiting []journal.Sealed // guarded by mu
	count   int              // their events; guarded by mu
	newest  uint64           // the newest position noted; guarded by mu
}

// put takes a record. It never waits.
func (b *inbox) put(s journal.Sealed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = max(b.newest, s.Position)
	if len(b.waiting) < mostWaiting {
		b.waiting = append(b.waiting, s)
	}
	if b.count += s.Events; len(b.waiting) >= wakeAt || b.count >= b.events/wakePart {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// take returns the waiting records, and the newest noted position.
func (b *inbox) take() (waiting []journal.Sealed, newest uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, b.waiting, b.count = b.waiting, nil, 0
	return waiting, b.newest
}
