package relay

import (
	"context"
	"sync"
	"sync/atomic"
)

// window holds the unacknowledged batches in the order of the source. A position is
// acknowledged after everything before it is settled.
type window struct {
	source Source
	stop   context.CancelFunc // ends the pump when the source fails
	room   chan struct{}      // holds a token for each batch

	mu      sync.Mutex // held during Ack, so positions only grow
	batches []*unsettled
	err     error // of the source
}

// unsettled is a batch under delivery.
type unsettled struct {
	position Position
	left     atomic.Int64 // deliveries not settled yet, and one while more may come
}

// newWindow makes a window with room for so many batches.
func newWindow(source Source, stop context.CancelFunc, batches int) *window {
	return &window{source: source, stop: stop, room: make(chan struct{}, batches)}
}

// wait returns when there is room for a further batch, or ctx's error.
func (w *window) wait(ctx context.Context) error {
	select {
	case w.room <- struct{}{}:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// add takes in a batch after wait. It must be settled once, and once more for each delivery
// added to left.
func (w *window) add(p Position) *unsettled {
	b := &unsettled{position: p}
	b.left.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, b)
	return b
}

// settle counts down the rest of a batch, and acknowledges up to the first unsettled one.
// After a crash before an acknowledgement is on disk, its events are delivered again, with
// the same ids.
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
	for range n {
		<-w.room
	}
}
