package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// fleet is a pump with several fake sinks, to be run in a synctest bubble.
type fleet struct {
	source *relaytest.Source
	sinks  []*relaytest.Sink
	dead   *relaytest.DeadLetters
	log    *waiting.Output
	reg    *prometheus.Registry
	pump   *relay.Pump
}

// newFleet returns a pump with n sinks, each of which answers with respond.
func newFleet(source *relaytest.Source, n int, respond func([]relay.Event) relaytest.Outcome) *fleet {
	f := &fleet{source: source, dead: &relaytest.DeadLetters{}, log: &waiting.Output{}, reg: prometheus.NewRegistry()}
	instances := make([]relay.Sink, n)
	for i := range instances {
		sink := &relaytest.Sink{Respond: func(_ int, events []relay.Event) relaytest.Outcome { return respond(events) }}
		f.sinks, instances[i] = append(f.sinks, sink), sink
	}
	f.pump = &relay.Pump{
		Name: "test", Source: source, Sink: instances[0], Parallel: instances[1:], DeadLetters: f.dead,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)), Metrics: relay.NewMetrics(f.reg),
	}
	return f
}

// start runs the pump until stop is called; stop waits until the pump has ended.
func (f *fleet) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.pump.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		for i, s := range f.sinks {
			assert.Zero(t, s.Overlaps(), "two deliveries at once to sink %d", i)
		}
	}
}

func (f *fleet) arrived() []string {
	var all []string
	for _, s := range f.sinks {
		all = append(all, ids(s.Arrived())...)
	}
	return all
}

func (f *fleet) failing(t *testing.T) bool {
	t.Helper()
	err := testutil.GatherAndCompare(f.reg, strings.NewReader(
		"# HELP auditrelay_sink_failing 1 while deliveries fail and are tried again.\n"+
			"# TYPE auditrelay_sink_failing gauge\nauditrelay_sink_failing{sink=\"test\"} 1\n"), "auditrelay_sink_failing")
	return err == nil
}

func split(events []relay.Event, n int) [][]relay.Event {
	return slices.Collect(slices.Chunk(events, n))
}

func has(events []relay.Event, id string) bool {
	return slices.ContainsFunc(events, func(e relay.Event) bool { return e.ID == id })
}

func slow([]relay.Event) relaytest.Outcome { return relaytest.Outcome{Latency: time.Second} }

func TestParallelPumpIsFaster(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(64)
	for name, source := range map[string]func() *relaytest.Source{
		"many batches":         func() *relaytest.Source { return relaytest.NewSource(split(events, 1)...) },
		"one batch, many cuts": func() *relaytest.Source { return relaytest.NewSource(events) },
	} {
		for parallel, want := range map[int]time.Duration{1: 64 * time.Second, 8: 8 * time.Second, 64: time.Second} {
			t.Run(fmt.Sprintf("%s/%d", name, parallel), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(source(), parallel, slow)
					f.pump.Limit.Events = 1
					stop := f.start(t)
					time.Sleep(want - time.Millisecond)
					synctest.Wait()
					assert.Less(t, f.source.Acked(), relay.Position(64))
					time.Sleep(time.Millisecond)
					synctest.Wait()
					assert.Equal(t, relay.Position(64), f.source.Acked())
					assert.ElementsMatch(t, ids(events), f.arrived())
					assert.True(t, slices.IsSorted(f.source.Acks()))
					stop()
				})
			})
		}
	}
}

// The first delivery hangs while the later ones finish. The position stays before it, so that
// it comes again after a crash.
func TestParallelPumpPositionNeverRunsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(8)
		hangs := func(got []relay.Event) relaytest.Outcome { return relaytest.Outcome{Hang: has(got, events[2].ID)} }
		f := newFleet(relaytest.NewSource(split(events, 2)...), 4, hangs)
		stop := f.start(t)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.ElementsMatch(t, ids(slices.Concat(events[:2], events[4:])), f.arrived(), "the others are not held up")
		assert.Equal(t, relay.Position(2), f.source.Acked())
		stop()
		assert.Equal(t, relay.Position(2), f.source.Acked())

		again := newFleet(relaytest.NewSource(split(events[f.source.Acked():], 2)...), 4, func([]relay.Event) relaytest.Outcome { return relaytest.Outcome{} })
		stop = again.start(t)
		synctest.Wait()
		stop()
		assert.Contains(t, again.arrived(), events[2].ID)
		assert.Equal(t, relay.Position(6), again.source.Acked())
	})
}

// The deliveries of one batch are settled in any order; the batch counts when all of them are.
func TestParallelPumpWaitsForEachPartOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(10)
		start := time.Now()
		hangs := func(got []relay.Event) relaytest.Outcome {
			if has(got, events[5].ID) && time.Since(start) < time.Minute {
				return relaytest.Outcome{Err: errors.New("busy")}
			}
			return relaytest.Outcome{}
		}
		f := newFleet(relaytest.NewSource(events[:9], events[9:]), 3, hangs)
		f.pump.Limit.Events = 2
		stop := f.start(t)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Len(t, f.arrived(), 8, "all but the delivery that holds event 5")
		assert.Empty(t, f.source.Acks())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Len(t, f.arrived(), 10)
		assert.Equal(t, []relay.Position{10}, f.source.Acks(), "one acknowledgement covers what is settled")
		stop()
	})
}

// While a delivery is not settled, the others go on to a limit. Then nothing more is read, so
// that a crash delivers no more than that twice.
func TestParallelPumpReadsAheadWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(500)
		down := func(got []relay.Event) relaytest.Outcome {
			if has(got, events[0].ID) {
				return relaytest.Outcome{Err: errors.New("busy")}
			}
			return relaytest.Outcome{}
		}
		f := newFleet(relaytest.NewSource(split(events, 1)...), 4, down)
		stop := f.start(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, f.arrived(), 4*4-1)
		assert.Empty(t, f.source.Acks())
		stop()
	})
}

func TestParallelPumpFindsThePoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(400)
		refused := []string{events[0].ID, events[99].ID, events[250].ID}
		f := newFleet(relaytest.NewSource(split(events, 100)...), 4, func(got []relay.Event) relaytest.Outcome {
			o := relaytest.Refusing(refused...)(0, got)
			o.Latency = time.Second
			return o
		})
		f.dead.Fail(errors.New("disk full"), errors.New("disk full"))
		stop := f.start(t)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, f.arrived(), 200, "two batches have no poison, and are not held up")
		time.Sleep(time.Minute)
		synctest.Wait()
		var dead []string
		for _, r := range f.dead.Kept("test") {
			dead = append(dead, r.Event.ID)
		}
		assert.ElementsMatch(t, refused, dead)
		assert.Len(t, f.arrived(), 397)
		assert.Equal(t, relay.Position(400), f.source.Acked())
		stop()
	})
}

// All deliveries meet the same error. It is logged once, and the sink counts as failing until
// the last of them has succeeded.
func TestParallelPumpTellsOfAnOutageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(8)
		start := time.Now()
		respond := func(got []relay.Event) relaytest.Outcome {
			switch since := time.Since(start); {
			case since < time.Hour:
				return relaytest.Outcome{Err: errors.New("connection refused")}
			case since < 2*time.Hour && has(got, events[1].ID):
				return relaytest.Outcome{Err: errors.New("partition has no leader")}
			}
			return relaytest.Outcome{}
		}
		f := newFleet(relaytest.NewSource(split(events, 1)...), 8, respond)
		stop := f.start(t)
		synctest.Wait()
		assert.True(t, f.failing(t))
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		assert.Len(t, f.arrived(), 7)
		assert.True(t, f.failing(t), "one delivery is still retried")
		assert.NotContains(t, f.log.String(), "works again")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.False(t, f.failing(t))
		assert.Equal(t, 1, strings.Count(f.log.String(), "delivery failed"), "eight failing deliveries are one outage")
		assert.Equal(t, 1+4, strings.Count(f.log.String(), "connection refused"), "after 1, 4, 13 and 40 minutes again")
		assert.Equal(t, 1, strings.Count(f.log.String(), "partition has no leader"), "a new reason is told at once")
		assert.Equal(t, 1, strings.Count(f.log.String(), "works again"))
		stop()
	})
}

// At the end, the deliveries under way get the grace period. Only those that have nothing
// unsettled before them count.
func TestParallelPumpEndsGently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(6)
		takes := map[string]time.Duration{
			events[0].ID: 3 * time.Second, events[1].ID: 5 * time.Second, events[2].ID: time.Hour, events[3].ID: 4 * time.Second,
		}
		f := newFleet(relaytest.NewSource(split(events, 1)...), 4, func(got []relay.Event) relaytest.Outcome {
			return relaytest.Outcome{Latency: takes[got[0].ID]}
		})
		stop := f.start(t)
		time.Sleep(time.Second)
		start := time.Now()
		stop()
		assert.Equal(t, 5*time.Second, time.Since(start), "the grace")
		assert.Len(t, f.arrived(), 3)
		assert.Equal(t, relay.Position(2), f.source.Acked())
	})
}

// A batch that was started is delivered as a whole, in however many deliveries: if the pump
// stopped in its middle, its beginning would be delivered twice.
func TestPumpEndsBehindABatch(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			events := relaytest.Events(8)
			f := newFleet(relaytest.NewSource(split(events, 4)...), instances, func([]relay.Event) relaytest.Outcome {
				return relaytest.Outcome{Latency: time.Second}
			})
			f.pump.Limit.Events = 1
			stop := f.start(t)
			time.Sleep(500 * time.Millisecond)
			stop()
			assert.Len(t, f.arrived(), 4)
			assert.Equal(t, relay.Position(4), f.source.Acked())
		})
	}
}

func TestParallelPumpEndsWithItsSource(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*relaytest.Source){
		"read events":         func(s *relaytest.Source) { s.Close() },
		"record the position": func(s *relaytest.Source) { s.FailAck(errors.New("no space")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := relaytest.NewSource(split(relaytest.Events(3), 1)...)
				fail(source)
				f := newFleet(source, 2, slow)
				start := time.Now()
				require.ErrorContains(t, f.pump.Run(t.Context()), name)
				assert.Less(t, time.Since(start), 10*time.Second)
				assert.NotEmpty(t, f.arrived(), "what was under way has ended")
			})
		})
	}
}
