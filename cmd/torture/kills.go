package main

import (
	"context"
	"fmt"
	"time"
)

// killed kills the relay at random moments: while it starts, in a commit,
// between two, in a delivery.
func killed(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{})
	if err != nil {
		return err
	}
	defer s.close()
	rng := t.random()
	for ; t.row.rounds < t.rounds; t.row.rounds++ {
		if err := s.start(); err != nil {
			return err
		}
		if rng.IntN(5) == 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		} else if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate/2)+1)); err != nil {
			return err
		}
		if s.relay.ended() {
			return fmt.Errorf("the relay ended by itself in round %d: %s", t.row.rounds+1, s.relay.tail())
		}
		s.relay.kill()
		if t.row.rounds%10 == 9 {
			t.progress("killed %d times, %d events acknowledged", t.row.rounds+1, s.sim.Counts().Acknowledged)
		}
	}
	if err := s.startReady(ctx); err != nil {
		return err
	}
	return s.settle(ctx)
}

// shutdown stops the relay under load, again and again.
func shutdown(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{})
	if err != nil {
		return err
	}
	defer s.close()
	rng := t.random()
	var slowest time.Duration
	for rounds := share(t.rounds, 10); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.start(); err != nil {
			return err
		}
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate)+1)); err != nil {
			return err
		}
		start := time.Now()
		if err := s.relay.stop(); err != nil {
			return err
		}
		slowest = max(slowest, time.Since(start))
	}
	t.remark("slowest exit %s, each with code 0", slowest.Round(time.Millisecond))
	if err := s.startReady(ctx); err != nil {
		return err
	}
	return s.settle(ctx)
}

// share returns a share of the rounds, at least one.
func share(rounds, of int) int { return max(1, rounds/of) }
