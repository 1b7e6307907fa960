package relay

import (
	"context"
	"sync"
	"sync/atomic"
)

// window holds the unacknowledged batches in the order of the source. A position is
// acknowledged once everything before it is settled.
type window struct {
	source Source
	stop   context.CancelFunc // ends the pump when the source fails
	most   int                // batches, unless an event is set aside
	freed  chan struct{}      // of one place: tells that there may be room

	mu      sync.Mutex // held during Ack, so that positions only grow
	batches []*unsettled
	aside   int   // pieces of batches that are set aside
	allowed int   // batches, while there are such pieces
	err     error // the source's error
}

// unsettled is a batch under delivery.
type unsettled struct {
	position Position
	left     atomic.Int64 // the deliveries that are not settled, and one more while others may be added
}

// newWindow returns a window with room for this many batches.
func newWindow(source Source, stop context.CancelFunc, batches int) *window {
	return &window{source: source, stop: stop, most: batches, freed: make(chan struct{}, 1)}
}

// wait returns when there is room for another batch, or with ctx's error.
func (w *window) wait(ctx context.Context) error {
	for !w.room() {
		select {
		case <-w.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

func (w *window) room() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.batches) < w.most || w.aside > 0 && len(w.batches) < w.allowed
}

// setAside adds to the number of pieces of batches that are set aside.
func (w *window) setAside(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aside += more; w.aside == 0 || w.allowed == 0 {
		w.allowed = heldBatches
	}
	w.free()
}

// allow makes room for one more batch where the window is full.
func (w *window) allow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = max(w.allowed, len(w.batches)+1)
	w.free()
}

// free tells the one who waits.
func (w *window) free() {
	select {
	case w.freed <- struct{}{}:
	default: // it is told already
	}
}

// add takes in a batch after wait. The batch must be settled once, and once more for each
// delivery that is added to left.
func (w *window) add(p Position) *unsettled {
	b := &unsettled{position: p}
	b.left.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, b)
	return b
}

// settle counts down what is left of a batch, and acknowledges everything before the first
// unsettled one. If the process crashes before an acknowledgement is on disk, the events are
// delivered again, with the same ids.
func (w *window) settle(b *unsettled) {
	if b.left.Add(-1) > 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.batches) && w.batches[n].left.Load() == 0 {
		n++
	}
	if n == 0 || w.err != nil {
		return
	}
	if w.err = w.source.Ack(context.Background(), w.batches[n-1].position); w.err != nil {
		w.stop()
		return
	}
	w.batches = append(w.batches[:0], w.batches[n:]...)
	w.free()
}
