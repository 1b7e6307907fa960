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
	room   chan struct{}      // holds a token for each batch

	mu      sync.Mutex // held during Ack, so that positions only grow
	batches []*unsettled
	err     error // the source's error
}

// unsettled is a batch under delivery.
type unsettled struct {
	position Position
	left     atomic.Int64 // the deliveries that are not settled, and one more while others may be added
}

// newWindow returns a window with room for this many batches.
func newWindow(source Source, stop context.CancelFunc, batches int) *window {
	return &window{source: source, stop: stop, room: make(chan struct{}, batches)}
}

// wait returns when there is room for another batch, or with ctx's error.
func (w *window) wait(ctx context.Context) error {
	select {
	case w.room <- struct{}{}:
	case <-ctx.Done():
	}
	return ctx.Err()
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
	for range n {
		<-w.room
	}
}
