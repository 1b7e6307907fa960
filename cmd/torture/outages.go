package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// outage takes Kafka away under load, and watches the other sinks, the relay's needs,
// and the time until Kafka has caught up.
func outage(ctx context.Context, t *trial) error {
	const mostMemory = 768
	s, err := t.running(ctx, setting{})
	if err != nil {
		return err
	}
	defer s.close()
	lasts := 20 * time.Second
	if t.long {
		lasts = 5 * time.Minute
	}
	if err := s.steady(ctx); err != nil {
		return err
	}
	before, err := s.rates(ctx, min(lasts, 10*time.Second))
	if err != nil {
		return err
	}
	s.kafkaProxy.set(fault{refuse: true})
	t.progress("Kafka is gone for %s", lasts)
	meanwhile, err := s.rates(ctx, lasts)
	if err != nil {
		return err
	}
	s.kafkaProxy.set(fault{})
	took, err := s.caughtUp(ctx)
	if err != nil {
		return err
	}
	t.row.rounds = 1
	memory := s.relay.peakMemory()
	t.remark("events/s before and in the outage of %s: acknowledged %.0f %.0f, nats %.0f %.0f, file %.0f %.0f", lasts,
		before.acknowledged, meanwhile.acknowledged, before.nats, meanwhile.nats, before.file, meanwhile.file)
	t.remark("Kafka had got all that it missed %s after; peak RSS %d MiB", took.Round(100*time.Millisecond), memory)
	if memory > mostMemory {
		return fmt.Errorf("the outage cost %d MiB, more than %d", memory, mostMemory)
	}
	if meanwhile.acknowledged < 0.9*before.acknowledged || meanwhile.nats < 0.9*before.nats || meanwhile.file < 0.9*before.file {
		return fmt.Errorf("the outage of one sink holds up the others: %+v before, %+v meanwhile", before, meanwhile)
	}
	return s.settle(ctx)
}

// caughtUp waits until Kafka has every event acknowledged up to now, under load.
func (s *scene) caughtUp(ctx context.Context) (time.Duration, error) {
	start, want := time.Now(), int64(s.sim.Counts().Acknowledged)
	err := s.kafkaGets(ctx, want, "Kafka catches up")
	return time.Since(start), err
}

// kafkaGets waits until Kafka has so many events.
func (s *scene) kafkaGets(ctx context.Context, want int64, what string) error {
	lacks := want
	return s.while(ctx, what, func() int64 {
		if n, err := s.kafka.Count(ctx); err == nil {
			lacks = want - n
		}
		return lacks
	}, func() bool { return lacks <= 0 })
}

// running sets a scene with a ready relay.
func (t *trial) running(ctx context.Context, o setting) (*scene, error) {
	s, err := t.newScene(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.startReady(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// steady waits until the load flows: the relay is known to the workspace, and the queue
// is gone.
func (s *scene) steady(ctx context.Context) error {
	if err := s.waitAcknowledged(ctx, uint64(2*s.t.rate)); err != nil {
		return err
	}
	var owed int64 // by the simulator or by the sink
	left := func() int64 {
		counts := s.sim.Counts()
		nats, err := s.nats.Count(ctx)
		if err != nil {
			return math.MaxInt64
		}
		owed = max(int64(counts.InFlight), int64(counts.Acknowledged)-nats)
		return owed
	}
	return s.while(ctx, "the sinks keep pace", left, func() bool { return float64(owed) < s.t.rate/2 })
}

// rates are events a second.
type rates struct{ acknowledged, nats, file float64 }

// rates measures for a while.
func (s *scene) rates(ctx context.Context, lasts time.Duration) (rates, error) {
	before, err := s.totals(ctx)
	if err != nil {
		return rates{}, err
	}
	start := time.Now()
	if err := s.hold(ctx, lasts); err != nil {
		return rates{}, err
	}
	after, err := s.totals(ctx)
	took := time.Since(start).Seconds()
	if took > 1.5*lasts.Seconds() {
		return rates{}, &skip{fmt.Sprintf("the machine stood still: %s took %.0fs, so that rates say nothing", lasts, took)}
	}
	return rates{
		acknowledged: (after.acknowledged - before.acknowledged) / took,
		nats:         (after.nats - before.nats) / took,
		file:         (after.file - before.file) / took,
	}, err
}

func (s *scene) totals(ctx context.Context) (rates, error) {
	nats, err := s.nats.Count(ctx)
	if err != nil {
		return rates{}, err
	}
	file, err := s.file.Count(ctx)
	return rates{acknowledged: float64(s.sim.Counts().Acknowledged), nats: float64(nats), file: float64(file)}, err
}

// hold lets time pass, and fails when the relay ends.
func (s *scene) hold(ctx context.Context, lasts time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.relay.exited:
		return fmt.Errorf("the relay ended by itself: %s", s.relay.tail())
	case <-time.After(lasts):
		return nil
	}
}

// restarts starts the relay again and again, by kill and by shutdown in turn,
// while Kafka is gone.
func restarts(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{})
	if err != nil {
		return err
	}
	defer s.close()
	s.kafkaProxy.set(fault{refuse: true})
	for ; t.row.rounds < 10; t.row.rounds++ {
		if err := s.start(); err != nil {
			return err
		}
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+uint64(t.rate/2)); err != nil {
			return err
		}
		if t.row.rounds%2 == 0 {
			s.relay.kill()
		} else if err := s.relay.stop(); err != nil {
			return err
		}
	}
	s.kafkaProxy.set(fault{})
	if err := s.startReady(ctx); err != nil {
		return err
	}
	return s.settle(ctx)
}

// mute has NATS accept everything and answer nothing.
func mute(ctx context.Context, t *trial) error {
	return disturbed(ctx, t, func(s *scene) *proxy { return s.natsProxy }, fault{mute: true})
}

// late makes Kafka keep each record, and acknowledge it after the pump's timeout: every
// delivery is a duplicate.
func late(ctx context.Context, t *trial) error {
	return disturbed(ctx, t, func(s *scene) *proxy { return s.kafkaProxy }, fault{delay: 3 * time.Second})
}

func disturbed(ctx context.Context, t *trial, which func(*scene) *proxy, f fault) error {
	s, err := t.running(ctx, setting{sinkTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.steady(ctx); err != nil {
		return err
	}
	which(s).set(f)
	during, err := s.rates(ctx, 12*time.Second)
	if err != nil {
		return err
	}
	which(s).set(fault{})
	t.row.rounds = 1
	t.remark("12s; meanwhile acknowledged %.0f/s, file %.0f/s", during.acknowledged, during.file)
	if during.file < 0.8*t.rate {
		return fmt.Errorf("the file sink is held up: %.0f of %.0f events/s", during.file, t.rate)
	}
	return s.settle(ctx)
}
