package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// pumpingAhead is pumping with a source that may be read ahead.
func pumpingAhead(t *testing.T, respond func(int, []relay.Event) relaytest.Outcome, batches [][]relay.Event, check func(t *testing.T, p *pumped)) {
	t.Helper()
	pumpingWith(t, func(p *relay.Pump) { p.ReadAhead = true }, respond, batches, check)
}

var errFell = relay.Suspect(errors.New("it answered 500"))

// falling is a receiver that falls over some events.
func falling(ids ...string) func(int, []relay.Event) relaytest.Outcome {
	return func(_ int, got []relay.Event) relaytest.Outcome {
		if slices.ContainsFunc(got, func(e relay.Event) bool { return slices.Contains(ids, e.ID) }) {
			return relaytest.Outcome{Err: errFell}
		}
		return relaytest.Outcome{}
	}
}

func numbers(from, to int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := from; i < to && yield(i); i++ {
		}
	}
}

// In a stream that goes on, events that a receiver falls over end in the dead letters, and hold up
// the others for some minutes at most.
func TestPumpSetsAPoisonAside(t *testing.T) {
	for name, poisons := range map[string][]int{
		"the first":           {0},
		"one":                 {417},
		"neighbours":          {417, 418, 419},
		"one in each":         {50, 150, 250, 350, 450, 550, 650, 750, 850, 950},
		"the last of a batch": {99, 999},
		"a run in a batch":    slices.Collect(numbers(620, 680)),
		"a run of batches":    slices.Collect(numbers(470, 640)),
	} {
		t.Run(name, func(t *testing.T) {
			events := relaytest.Events(1000)
			more := relaytest.Events(1300)[1000:]
			var bad []string
			for _, i := range poisons {
				bad = append(bad, events[i].ID)
			}
			pumpingAhead(t, falling(bad...), split(events, 100), func(t *testing.T, p *pumped) {
				for _, e := range more { // others follow, one at a time
					time.Sleep(10 * time.Second)
					p.source.Push([]relay.Event{e})
				}
				synctest.Wait()
				var dead []string
				for _, r := range p.dead.Kept("test") {
					dead = append(dead, r.Event.ID)
					assert.Equal(t, fmt.Sprintf("it was refused %d times by itself, while others were accepted: it answered 500", r.Attempts), r.Reason)
				}
				slices.Sort(dead)
				slices.Sort(bad)
				assert.Equal(t, bad, dead)
				arrived := ids(p.sink.Arrived())
				assert.Len(t, arrived, 1300-len(bad), "each of the others once")
				assert.Equal(t, relay.Position(1300), p.source.Acked())
				assert.Empty(t, compare(p.reg, "auditrelay_sink_failing", `{sink="test"}`, 0))
				assert.LessOrEqual(t, strings.Count(p.log.String(), "delivery failed"), 2*len(bad), "it is logged once")
				assert.Less(t, len(p.sink.Calls()), 300+60*len(bad)+200)
			})
		})
	}
}

// A receiver that falls over everything is away. Nothing goes to the dead letters, the order is
// kept, and it is not flooded with attempts.
func TestPumpTakesAnOutageForNoPoison(t *testing.T) {
	events := relaytest.Events(1000)
	var up atomic.Bool
	outage := func(int, []relay.Event) relaytest.Outcome {
		if !up.Load() {
			return relaytest.Outcome{Err: errFell}
		}
		return relaytest.Outcome{}
	}
	pumpingAhead(t, outage, split(events, 250), func(t *testing.T, p *pumped) {
		time.Sleep(72 * time.Hour)
		synctest.Wait()
		assert.Empty(t, p.dead.Kept("test"))
		assert.Zero(t, p.source.Acked())
		assert.Less(t, len(p.sink.Calls()), 2*72*260)
		assert.Empty(t, compare(p.reg, "auditrelay_sink_failing", `{sink="test"}`, 1))
		up.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, ids(events), ids(p.sink.Arrived()))
		assert.Equal(t, relay.Position(1000), p.source.Acked())
		assert.Empty(t, compare(p.reg, "auditrelay_sink_failing", `{sink="test"}`, 0))
	})
}

// Where nothing else arrives, nothing is held up, and there is no proof.
func TestPumpKeepsALoneEvent(t *testing.T) {
	events := relaytest.Events(1)
	var up atomic.Bool
	pumpingAhead(t, func(int, []relay.Event) relaytest.Outcome {
		if !up.Load() {
			return relaytest.Outcome{Err: errFell}
		}
		return relaytest.Outcome{}
	}, [][]relay.Event{events}, func(t *testing.T, p *pumped) {
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Empty(t, p.dead.Kept("test"))
		assert.Zero(t, p.source.Acked())
		assert.Greater(t, len(p.sink.Calls()), 24*110)
		up.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, ids(events), ids(p.sink.Arrived()))
		assert.Equal(t, relay.Position(1), p.source.Acked())
	})
}

// A receiver that fails most of the time, whatever it gets, refuses no event for good.
func TestPumpForgivesAReceiverThatFailsAtRandom(t *testing.T) {
	for _, often := range []float64{0.3, 0.6, 0.9} {
		random := rand.New(rand.NewPCG(1, 2))
		events := relaytest.Events(2000)
		pumpingAhead(t, func(int, []relay.Event) relaytest.Outcome {
			if random.Float64() < often {
				return relaytest.Outcome{Err: errFell}
			}
			return relaytest.Outcome{}
		}, split(events, 5), func(t *testing.T, p *pumped) {
			time.Sleep(100 * time.Hour)
			synctest.Wait()
			assert.Empty(t, p.dead.Kept("test"), "%v", often)
			assert.Len(t, p.sink.Arrived(), 2000)
			assert.Equal(t, relay.Position(2000), p.source.Acked())
		})
	}
}

// The positions before an event that is set aside wait for it, so that it comes again after a
// crash; and the pump reads ahead to a limit.
func TestPumpReadsAheadWhileAnEventIsAside(t *testing.T) {
	events := relaytest.Events(1000)
	pumpingAhead(t, falling(events[1].ID), split(events, 1), func(t *testing.T, p *pumped) {
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, relay.Position(1), p.source.Acked())
		assert.InDelta(t, 256, len(p.sink.Arrived()), 10)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Len(t, p.dead.Kept("test"), 1)
		assert.Equal(t, relay.Position(1000), p.source.Acked())
	})
}

// A source that is not made for it is not read ahead.
func TestPumpReadsAheadOnlyWhereItMay(t *testing.T) {
	events := relaytest.Events(10)
	pumping(t, falling(events[1].ID), split(events, 2), func(t *testing.T, p *pumped) {
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Empty(t, p.sink.Arrived())
		assert.Empty(t, p.dead.Kept("test"))
	})
}

// choosy acknowledges the events with odd numbers without sending them.
type choosy struct {
	relay.Sink
	sends atomic.Uint64
}

func (c *choosy) Sends() uint64 { return 1 + c.sends.Load() }

func (c *choosy) Deliver(ctx context.Context, events []relay.Event) error {
	if len(events) == 1 && len(events[0].Body)%2 == 1 {
		return nil
	}
	err := c.Sink.Deliver(ctx, events)
	if err == nil {
		c.sends.Add(1)
	}
	return err
}

// While the destination is away, a sink goes on to acknowledge what it does not choose. That
// proves nothing.
func TestPumpBelievesOnlyWhatWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := relaytest.Events(2000)
		for i := range events {
			events[i].Body = make([]byte, 2+i%2)
		}
		sink := &choosy{Sink: &relaytest.Sink{Respond: func(int, []relay.Event) relaytest.Outcome { return relaytest.Outcome{Err: errFell} }}}
		dead := &relaytest.DeadLetters{}
		pump := &relay.Pump{
			Name: "test", Source: relaytest.NewSource(split(events, 1)...), Sink: sink, DeadLetters: dead, ReadAhead: true, Logger: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pump.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Empty(t, dead.Kept("test"))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// A lasting error that no event can cause sets nothing aside.
func TestPumpSuspectsOnlyWhatIsMarked(t *testing.T) {
	events := relaytest.Events(10)
	pumpingAhead(t, func(_ int, got []relay.Event) relaytest.Outcome {
		if has(got, events[3].ID) {
			return relaytest.Outcome{Err: errors.New("it answered 401")}
		}
		return relaytest.Outcome{}
	}, split(events, 1), func(t *testing.T, p *pumped) {
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Len(t, p.sink.Arrived(), 3)
		assert.Empty(t, p.dead.Kept("test"))
	})
}
