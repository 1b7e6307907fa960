package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// sweepRest is the pause after a sweep in vain: refused pushes must not flood the store
// with requests.
const sweepRest = 50 * time.Millisecond

// reservePatience bounds how long a reservation waits for the sinks' positions.
const reservePatience = 2 * time.Second

// sweeps trim delivered records to make room. Waiting callers share the next sweep to
// begin.
type sweeps struct {
	wake chan struct{} // of one place

	mu   sync.Mutex
	next *sweep // guarded by mu
}

type sweep struct {
	need int64         // bytes to make room for
	done chan struct{} // closed at its end
}

func newSweep() *sweep { return &sweep{done: make(chan struct{})} }

// press asks for a sweep, soon.
func (s *sweeps) press() {
	select {
	case s.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// join returns the next sweep to begin, and has it make room for need bytes.
func (s *sweeps) join(need int64) *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next.need = max(s.next.need, need)
	s.press()
	return s.next
}

// begin takes the next sweep.
func (s *sweeps) begin() *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.next
	s.next = newSweep()
	return now
}

// makeRoom waits for a sweep: an attempt to make room for need bytes, by trimming delivered
// records of any age.
func (j *Journal) makeRoom(ctx context.Context, need int64) error {
	sweep := j.sweeps.join(need)
	select {
	case <-sweep.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-j.life.Done():
		return ErrClosed
	}
}

// sweepLoop trims the oldest delivered records as the budget nears its end.
func (j *Journal) sweepLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.sweeps.wake:
		}
		sweep := j.sweeps.begin()
		gone, err := j.sweep(ctx, sweep.need)
		close(sweep.done)
		if err != nil && !errors.Is(err, errUncertain) && ctx.Err() == nil {
			j.log.Warn("making room in the journal failed; it is tried again", "error", err)
		}
		if gone == 0 && retry.Sleep(ctx, sweepRest) != nil {
			return
		}
	}
}

// sweep trims in steps, because records differ in size, and a store drops only as many at
// once as it can without rewriting others.
func (j *Journal) sweep(ctx context.Context, need int64) (gone uint64, err error) {
	for factor := uint64(1); factor > 0; {
		more := false
		n, err := j.trim(ctx, func(free extent) (store.Pos, error) {
			if !free.sinks { // nobody has had them
				return free.first, nil
			}
			all := uint64(free.end - free.first)
			records := uint64(free.state.End + 1 - free.state.First)
			surplus := min(all, j.budget.surplus(free.state.Bytes, records, need)*factor)
			more = surplus > 0 && surplus < all
			return free.first + store.Pos(surplus), nil
		})
		gone += n
		switch {
		case err != nil, n == 0 && !more:
			return gone, err
		case n == 0:
			factor *= 2
		default:
			factor = 1
		}
	}
	return gone, nil
}

// Reserve reserves room for a source's append of so many bytes before compression. The
// caller calls giveBack after the append. The error wraps ErrShare where the
// source's undelivered events take too much of the budget: more than most stored bytes, if
// most is above 0, or more than fairness allows at the budget's edge. Before it refuses, it
// asks the sinks' positions again.
func (j *Journal) Reserve(ctx context.Context, source string, bytes, most int64) (giveBack func(), err error) {
	reserved, err := j.budget.reserve(source, bytes, most)
	if err != nil {
		looking, cancel := context.WithTimeout(ctx, reservePatience)
		defer cancel()
		if j.makeRoom(looking, 0) != nil {
			return nil, err
		}
		if reserved, err = j.budget.reserve(source, bytes, most); err != nil {
			return nil, err
		}
	}
	if reserved == 0 {
		return func() {}, nil
	}
	return func() { j.budget.giveBack(source, reserved) }, nil
}

// room is what a log offers that can tell whether an append would be taken. A log on disk
// does; whether an external cluster takes something shows when it is tried.
type room interface {
	// Room returns nil if an append of so many bytes would find room now.
	Room(ctx context.Context, need int64) error
}

// Refusing says why the last append was refused, if another one would be too.
func (j *Journal) Refusing(ctx context.Context) error {
	last := j.refused.Load()
	switch {
	case last == nil:
		return nil
	case errors.Is(last.err, store.ErrGone):
		return last.err
	case errors.Is(last.err, ErrFull):
		if err := j.makeRoom(ctx, last.need); err != nil {
			return fmt.Errorf("look for room in the journal: %w", err)
		}
		if tight := j.budget.tight(last.need); tight {
			return last.err
		} else if last.tight {
			return nil
		}
	}
	if log, asks := j.events.(room); asks {
		ctx, cancel := context.WithTimeout(ctx, reservePatience)
		defer cancel()
		return log.Room(ctx, last.need)
	}
	if time.Since(last.at) > commitTimeout {
		return nil // the next append will tell whether it still is so
	}
	return last.err
}
