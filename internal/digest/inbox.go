package digest

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
	newest  uint64           // the newest position noted since the last turn; guarded by mu
	turns   int              // how often the stream had gone back by then; guarded by mu
}

// put takes a record. It never waits.
func (b *inbox) put(s journal.Sealed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.Turns < b.turns:
		return // its position may be another record's now
	case s.Turns > b.turns:
		b.turns, b.newest, b.waiting, b.count = s.Turns, 0, nil, 0
	}
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

// take returns the waiting records, the newest noted position, and how often the stream
// had gone back.
func (b *inbox) take() (waiting []journal.Sealed, newest uint64, turns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, b.waiting, b.count = b.waiting, nil, 0
	return waiting, b.newest, b.turns
}

// turned drops all from before a turn.
func (b *inbox) turned(turns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if turns > b.turns {
		b.turns, b.newest, b.waiting, b.count = turns, 0, nil, 0
	}
}
