package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// pumped is a pump with fakes, running in a synctest bubble.
type pumped struct {
	source *relaytest.Source
	sink   *relaytest.Sink
	dead   *relaytest.DeadLetters
	log    *strings.Builder
	pump   *relay.Pump
	reg    *prometheus.Registry
}

// pumping runs check while a pump carries batches to a sink that answers with respond. The pump
// ends when check returns.
func pumping(t *testing.T, respond func(int, []relay.Event) relaytest.Outcome, batches [][]relay.Event, check func(t *testing.T, p *pumped)) {
	t.Helper()
	pumpingWith(t, func(*relay.Pump) {}, respond, batches, check)
}

func pumpingWith(t *testing.T, change func(*relay.Pump), respond func(int, []relay.Event) relaytest.Outcome, batches [][]relay.Event, check func(t *testing.T, p *pumped)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pumped{
			source: relaytest.NewSource(batches...),
			sink:   &relaytest.Sink{Respond: respond},
			dead:   &relaytest.DeadLetters{},
			log:    &strings.Builder{},
			reg:    prometheus.NewRegistry(),
		}
		p.pump = &relay.Pump{
			Name: "test", Source: p.source, Sink: p.sink, DeadLetters: p.dead,
			Logger: slog.New(slog.NewTextHandler(p.log, nil)), Metrics: relay.NewMetrics(p.reg),
		}
		change(p.pump)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.pump.Run(ctx) }()
		check(t, p)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Zero(t, p.sink.Overlaps(), "two deliveries at once")
	})
}

func ids(events []relay.Event) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func TestPumpDeliversInOrderAndAcknowledges(t *testing.T) {
	events := relaytest.Events(300)
	pumping(t, nil, [][]relay.Event{events[:100], events[100:]}, func(t *testing.T, p *pumped) {
		synctest.Wait()
		assert.Equal(t, ids(events), ids(p.sink.Arrived()))
		assert.Equal(t, relay.Position(300), p.source.Acked())
		assert.Empty(t, compare(p.reg, "auditrelay_sink_delivered_events_total", `{sink="test"}`, 300))
	})
}

// lockstep is a source that returns a batch only after all earlier ones were acknowledged.
type lockstep struct {
	*relaytest.Source
	t     *testing.T
	given relay.Position
}

func (s *lockstep) Next(ctx context.Context) (relay.Batch, error) {
	assert.Equal(s.t, s.given, s.Acked(), "read on before it acknowledged")
	b, err := s.Source.Next(ctx)
	s.given = max(s.given, b.Position)
	return b, err
}

func TestPumpWithOneSinkAcknowledgesBeforeItReadsOn(t *testing.T) {
	events := relaytest.Events(10)
	synctest.Test(t, func(t *testing.T) {
		source := &lockstep{Source: relaytest.NewSource(events[:4], events[4:7], events[7:]), t: t}
		sink := &relaytest.Sink{Respond: relaytest.Script(relaytest.Outcome{Latency: time.Second}, relaytest.Outcome{Latency: time.Second})}
		pump := &relay.Pump{
			Name: "test", Source: source, Sink: sink, DeadLetters: &relaytest.DeadLetters{},
			Limit: relay.BatchLimit{Events: 2, Bytes: 1 << 20}, Logger: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pump.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, ids(events), ids(sink.Arrived()))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestPumpRetriesForDays(t *testing.T) {
	events := relaytest.Events(10)
	start := time.Time{}
	down := func(int, []relay.Event) relaytest.Outcome {
		if start.IsZero() {
			start = time.Now()
		}
		if time.Since(start) < 72*time.Hour {
			return relaytest.Outcome{Err: errors.New("connection refused")}
		}
		return relaytest.Outcome{}
	}
	pumping(t, down, [][]relay.Event{events}, func(t *testing.T, p *pumped) {
		time.Sleep(71 * time.Hour)
		synctest.Wait()
		assert.Empty(t, p.sink.Arrived())
		assert.Zero(t, p.source.Acked(), "acknowledged what was not delivered")
		time.Sleep(time.Hour + maxWait)
		synctest.Wait()
		assert.Equal(t, ids(events), ids(p.sink.Arrived()))
		assert.Equal(t, relay.Position(10), p.source.Acked())
		calls := len(p.sink.Calls())
		assert.Greater(t, calls, 72*120, "it waits longer than the ceiling")
		assert.Less(t, calls, 72*260, "it does not back off")
		assert.Equal(t, 1, strings.Count(p.log.String(), "delivery failed"))
		reminders := strings.Count(p.log.String(), "delivery still fails")
		assert.True(t, 72 <= reminders && reminders <= 80, "a lasting failure is logged again at growing intervals, up to an hour: %d", reminders)
		assert.Contains(t, p.log.String(), "delivery works again")
	})
}

// maxWait is the ceiling of the pump's backoff.
const maxWait = 30 * time.Second

func TestPumpHonoursRetryAfter(t *testing.T) {
	asked := relaytest.Outcome{Err: relay.RetryAfter(errors.New("slow down"), 10*time.Minute)}
	pumping(t, relaytest.Script(asked), [][]relay.Event{relaytest.Events(1)}, func(t *testing.T, p *pumped) {
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		assert.Len(t, p.sink.Calls(), 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, p.sink.Arrived(), 1)
	})
}

func TestPumpFindsThePoison(t *testing.T) {
	events := relaytest.Events(1000)
	for name, respond := range map[string]func(...string) func(int, []relay.Event) relaytest.Outcome{
		"by halving": relaytest.Refusing,
		"by name": func(ids ...string) func(int, []relay.Event) relaytest.Outcome {
			return relaytest.Naming(relay.Permanent(errors.New("an event is refused")), ids...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused := []string{events[0].ID, events[417].ID, events[418].ID, events[999].ID}
			pumping(t, respond(refused...), [][]relay.Event{events}, func(t *testing.T, p *pumped) {
				synctest.Wait()
				var dead []string
				for _, r := range p.dead.Kept("test") {
					dead = append(dead, r.Event.ID)
					assert.Equal(t, "an event is refused", r.Reason)
					assert.Positive(t, r.Attempts)
				}
				assert.Equal(t, refused, dead)
				rest := slices.DeleteFunc(ids(events), func(id string) bool { return slices.Contains(refused, id) })
				assert.Equal(t, rest, ids(p.sink.Arrived()), "the others arrive, in order")
				assert.Equal(t, relay.Position(1000), p.source.Acked())
				assert.Less(t, len(p.sink.Calls()), 100)
			})
		})
	}
}

// calls records the dead letters of each call of Reject.
type calls struct {
	relaytest.DeadLetters
	sizes []int
}

func (c *calls) Reject(ctx context.Context, sink string, r []relay.Rejection) error {
	c.sizes = append(c.sizes, len(r))
	return c.DeadLetters.Reject(ctx, sink, r)
}

// A delivery that is refused as a whole is halved down to its events. Their letters are stored
// with one call, since each call costs a sync. Refused events do not wait for those that are
// retried, and a sink that refuses everything does not fill the log.
func TestPumpKeepsTheLettersOfADeliveryAtOnce(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(100)
	var up atomic.Bool
	respond := func(_ int, given []relay.Event) relaytest.Outcome {
		if given[0].ID == events[80].ID && len(given) == 1 && !up.Load() {
			return relaytest.Outcome{Err: errors.New("down")}
		}
		return relaytest.Outcome{Err: relay.Permanent(errors.New("no"))}
	}
	synctest.Test(t, func(t *testing.T) {
		dead, source, log := &calls{}, relaytest.NewSource(events[:60], events[60:]), &strings.Builder{}
		reg := prometheus.NewRegistry()
		pump := relay.Pump{
			Name: "test", Source: source, Sink: &relaytest.Sink{Respond: respond}, DeadLetters: dead,
			Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: relay.NewMetrics(reg),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- pump.Run(ctx) }()
		synctest.Wait()
		assert.Equal(t, []int{60, 20}, dead.sizes)
		up.Store(true)
		time.Sleep(time.Hour)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Equal(t, []int{60, 20, 20}, dead.sizes)
		assert.Len(t, dead.Kept("test"), 100)
		assert.Equal(t, relay.Position(100), source.Acked())
		assert.Equal(t, 1, strings.Count(log.String(), "sink refused events"), log.String())
		assert.Empty(t, compare(reg, "auditrelay_sink_rejected_events_total", `{sink="test"}`, 100))
	})
}

func TestPumpRetriesOnlyWhatFailed(t *testing.T) {
	events := relaytest.Events(5)
	partial := &relay.PartialError{Failures: []relay.Failure{
		{Index: 1, Err: errors.New("busy")}, {Index: 3, Err: relay.RetryAfter(errors.New("busy"), time.Minute)},
	}}
	pumping(t, relaytest.Script(relaytest.Outcome{Err: partial}), [][]relay.Event{events}, func(t *testing.T, p *pumped) {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Len(t, p.sink.Calls(), 1, "the longest wait asked for counts")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{events[1].ID, events[3].ID}, ids(p.sink.Calls()[1]))
		assert.Equal(t, relay.Position(5), p.source.Acked())
	})
}

func TestPumpDoesNotBelieveAnImplausiblePartial(t *testing.T) {
	events := relaytest.Events(3)
	for name, failures := range map[string][]relay.Failure{
		"none":         nil,
		"out of range": {{Index: 3, Err: errors.New("x")}},
		"twice":        {{Index: 1, Err: errors.New("x")}, {Index: 1, Err: errors.New("x")}},
		"no error":     {{Index: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			lie := relaytest.Outcome{Err: &relay.PartialError{Failures: failures}}
			pumping(t, relaytest.Script(lie), [][]relay.Event{events}, func(t *testing.T, p *pumped) {
				time.Sleep(time.Second)
				synctest.Wait()
				require.Len(t, p.sink.Calls(), 2)
				assert.Equal(t, ids(events), ids(p.sink.Calls()[1]), "all of it is delivered again")
				assert.Empty(t, p.dead.Kept("test"))
			})
		})
	}
}

func TestPumpKeepsTryingToKeepDeadLetters(t *testing.T) {
	events := relaytest.Events(2)
	pumping(t, relaytest.Refusing(events[0].ID), [][]relay.Event{events[:1]}, func(t *testing.T, p *pumped) {
		synctest.Wait() // the first rejection is kept
		require.Len(t, p.dead.Kept("test"), 1)
		p.dead.Fail(errors.New("disk full"), errors.New("disk full"))
		p.source.Push([]relay.Event{events[0], events[1]})
		synctest.Wait()
		assert.Equal(t, relay.Position(1), p.source.Acked(), "acknowledged before the dead letter is kept")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, p.dead.Kept("test"), 2)
		assert.Equal(t, relay.Position(3), p.source.Acked())
	})
}

func TestPumpBoundsADelivery(t *testing.T) {
	events := relaytest.Events(10, relaytest.BodyBytes(1000))
	events[4].Body = make([]byte, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		source, sink := relaytest.NewSource(events), &relaytest.Sink{}
		pump := &relay.Pump{
			Name: "test", Source: source, Sink: sink, DeadLetters: &relaytest.DeadLetters{},
			Limit: relay.BatchLimit{Events: 3, Bytes: 2500}, Logger: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = pump.Run(ctx) }()
		synctest.Wait()
		var sizes []int
		for _, c := range sink.Calls() {
			sizes = append(sizes, len(c))
		}
		assert.Equal(t, []int{2, 2, 1, 2, 2, 1}, sizes)
		assert.Equal(t, ids(events), ids(sink.Arrived()))
	})
}

// When it is told to stop, the pump lets the delivery under way end, reads nothing more, and
// waits for no further attempt.
func TestPumpEndsGently(t *testing.T) {
	events := relaytest.Events(2)
	for name, c := range map[string]struct {
		outcome relaytest.Outcome
		took    time.Duration
		acked   relay.Position
	}{
		"a delivery under way":     {relaytest.Outcome{Latency: 3 * time.Second}, 2 * time.Second, 1},
		"one that takes too long":  {relaytest.Outcome{Latency: time.Minute}, 5 * time.Second, 0},
		"between two attempts":     {relaytest.Outcome{Err: relay.RetryAfter(errors.New("later"), time.Hour)}, 0, 0},
		"one that fails meanwhile": {relaytest.Outcome{Latency: 3 * time.Second, Err: errors.New("x")}, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, sink := relaytest.NewSource(events[:1], events[1:]), &relaytest.Sink{Respond: relaytest.Script(c.outcome)}
				pump := &relay.Pump{Name: "test", Source: source, Sink: sink, DeadLetters: &relaytest.DeadLetters{}, Logger: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- pump.Run(ctx) }()
				time.Sleep(time.Second)
				start := time.Now()
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				assert.Equal(t, c.took, time.Since(start))
				assert.Equal(t, c.acked, source.Acked())
				assert.Len(t, sink.Calls(), 1)
			})
		})
	}
}

// While another process may be the one that delivers, neither the sink nor the dead letters get anything.
func TestAPumpDoesNothingWithoutItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(2)
		source, sink, letters := relaytest.NewSource(events[:1], events[1:]), &relaytest.Sink{Respond: relaytest.Script(relaytest.Outcome{Err: relay.Permanent(errors.New("no"))})}, &relaytest.DeadLetters{}
		permits := make(chan struct{})
		pump := &relay.Pump{
			Name: "test", Source: source, Sink: sink, DeadLetters: letters, Logger: slog.New(slog.DiscardHandler),
			Permit: func(ctx context.Context) error {
				select {
				case <-permits:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pump.Run(ctx) }()
		time.Sleep(time.Hour)
		assert.Empty(t, sink.Calls())
		permits <- struct{}{}
		time.Sleep(time.Hour)
		assert.Len(t, sink.Calls(), 1)
		assert.Empty(t, letters.Kept("test"), "the refused event waits as well")
		permits <- struct{}{}
		time.Sleep(time.Hour)
		assert.Len(t, letters.Kept("test"), 1)
		assert.Len(t, sink.Calls(), 1)
		assert.EqualValues(t, 1, source.Acked())
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Len(t, sink.Calls(), 1)
	})
}

func TestPumpTimesOutASinkThatNeverAnswers(t *testing.T) {
	hang := relaytest.Outcome{Hang: true}
	pumping(t, relaytest.Script(hang, hang), [][]relay.Event{relaytest.Events(1)}, func(t *testing.T, p *pumped) {
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Len(t, p.sink.Arrived(), 1)
	})
}

// A sink that delivers nothing of a delivery in which an event is refused has the others again at
// once, after the dead letters have the refused one.
func TestUntriedEventsAreTriedAtOnce(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(4)
	var p *pumped
	respond := func(call int, given []relay.Event) relaytest.Outcome {
		if call > 0 {
			assert.Len(t, p.dead.Kept("test"), 1, "the refused event goes first")
			return relaytest.Outcome{}
		}
		failures := make([]relay.Failure, len(given))
		for i := range given {
			failures[i] = relay.Failure{Index: i, Err: relay.ErrUntried}
		}
		failures[1].Err = relay.Permanent(errors.New("too large"))
		return relaytest.Outcome{Err: &relay.PartialError{Failures: failures}}
	}
	pumpingWith(t, func(pump *relay.Pump) { p = &pumped{dead: pump.DeadLetters.(*relaytest.DeadLetters)} }, respond, [][]relay.Event{events},
		func(t *testing.T, p *pumped) {
			start := time.Now()
			synctest.Wait()
			assert.Equal(t, relay.Position(4), p.source.Acked())
			assert.Zero(t, time.Since(start), "it did not wait")
			assert.Equal(t, []string{events[0].ID, events[2].ID, events[3].ID}, ids(p.sink.Arrived()))
			assert.NotContains(t, p.log.String(), "delivery failed")
		})
}
