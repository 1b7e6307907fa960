package main

import (
	"context"
	"fmt"
	"net/http"
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

// killedInRecovery kills the relay under load, so that the next start finds torn ends, and
// then kills that start, and the next one, each somewhere on its way to its first push.
func killedInRecovery(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{more: "journal: {max_bytes: 64MiB}\n"})
	if err != nil {
		return err
	}
	defer s.close()
	rng := t.random()
	const inARow = 5
	recovering, ready := 0, time.Duration(0)
	for rounds := share(t.rounds*2, 5); recovering < rounds; t.row.rounds++ {
		began := time.Now()
		if err := s.startReady(ctx); err != nil {
			return fmt.Errorf("after %d kills in a recovery: %w", recovering, err)
		}
		ready = time.Since(began)
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate/2)+1)); err != nil {
			return err
		}
		s.relay.kill()
		for range inARow {
			if err := s.start(); err != nil {
				return err
			}
			if err := s.hold(ctx, time.Duration(rng.Int64N(int64(ready)))); err != nil {
				return err
			}
			if code, _ := s.ask(ctx, "/readyz"); code != http.StatusOK {
				recovering++
			}
			s.relay.kill()
		}
	}
	if err := s.startReady(ctx); err != nil {
		return err
	}
	t.remark("killed %d times in the middle of a recovery, up to %d times in a row; the last whole start took %s", recovering, inARow, ready.Round(10*time.Millisecond))
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.nothingQuarantined(ctx)
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
