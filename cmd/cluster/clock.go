package main

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// clockPlay needs a relay of its own build.
const clockPlay = "clock"

// offFrozenFor is less than [frozenFor], as the clock is what is tried.
const offFrozenFor = 8 * time.Second

// wrongClock replaces a relay by one whose clock is an hour ahead or behind. The others leave, so
// that it does all jobs, and its clock is set right under way. When they are back, it goes wrong
// again, and the relay is frozen until others have replaced it.
func wrongClock(ctx context.Context, r *round) error {
	binary, err := r.clock.Wait(ctx)
	var none *rig.NoClockError
	if errors.As(err, &none) {
		r.note("SKIPPED: %s", none.Reason)
		return nil
	}
	if err != nil {
		return err
	}
	off, ahead := r.relays[r.rng.IntN(len(r.relays))], time.Hour
	forth, back := rig.ClockAhead, rig.ClockBack
	if r.rng.IntN(2) == 0 {
		ahead, forth, back = -ahead, back, forth
	}
	r.note("%s is %+.0f h off", off.name, ahead.Hours())
	if err := r.leave(ctx, off); err != nil {
		return err
	}
	defer off.run(binary, ahead)()
	if err := r.startAll(ctx, off); err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(r.relays), func(n *relayNode) bool { return n == off })
	if err := r.alone(ctx, off, others, back); err != nil {
		return err
	}
	if err := off.signal(forth); err != nil {
		return err
	}
	v := r.victimOf(ctx, off)
	if err := r.freeze(ctx, v, offFrozenFor); err != nil {
		return err
	}
	r.tried(ctx, v)
	return r.leave(ctx, off)
}

// alone has a relay do all jobs, and its clock set meanwhile, until the others are back.
func (r *round) alone(ctx context.Context, off *relayNode, others []*relayNode, set syscall.Signal) error {
	for _, other := range others {
		if err := r.leave(ctx, other); err != nil {
			return err
		}
	}
	if err := r.change(); err != nil {
		return err
	}
	if err := off.signal(set); err != nil {
		return err
	}
	return r.startAll(ctx, others...)
}
