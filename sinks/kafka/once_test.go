package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const positionTopic = "auditrelay.positions.test"

// onceCluster has a topic for the events, and one for positions.
func onceCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	c := newCluster(t, append([]kfake.Opt{kfake.SeedTopics(3, testTopic)}, opts...)...)
	require.NoError(t, c.CreateTopic(positionTopic, 1, map[string]string{cleanup: "compact"}))
	return c
}

// journal is what a live sink knows of one: here, each record has the checksum 7 times its
// position, up to the position end.
func journal(end uint64) *Journal {
	return &Journal{ID: "5a", Stream: "5a.1", Holds: func(_ context.Context, r relay.Record) (bool, error) {
		return r.Position <= end && r.Checksum == 7*r.Position, nil
	}}
}

// inJournal gives events their places, in records of three.
func inJournal(events []relay.Event) []relay.Event {
	for i := range events {
		at := uint64(i/3) + 1
		events[i].Record, events[i].Index = &relay.Record{Position: at, Checksum: 7 * at}, i%3
	}
	return events
}

// live makes a sink that delivers exactly once.
func (c *cluster) live(t testing.TB, opts Options, change func(*config.Kafka)) *Sink {
	t.Helper()
	cfg := c.config()
	cfg.Delivery = "exactly_once"
	if change != nil {
		change(&cfg)
	}
	section := config.Sink{Name: "test", Kafka: &cfg}
	require.NoError(t, section.Complete())
	opts.Name, opts.Timeout = section.Name, section.Timeout
	if opts.Journal == nil {
		opts.Journal = journal(math.MaxUint64)
	}
	s, err := New(cfg, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// committed reads what a consumer with read_committed gets, partition after partition.
func (c *cluster) committed(t testing.TB, topic string, opts ...kgo.Opt) (records []*kgo.Record) {
	t.Helper()
	opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ends := map[int32]int64{}
	offsets := map[int32]kgo.Offset{}
	for _, p := range c.PartitionInfos(topic) {
		if p.HighWatermark > 0 {
			ends[p.Partition], offsets[p.Partition] = p.HighWatermark, kgo.NewOffset().AtStart()
		}
	}
	if len(ends) == 0 {
		return nil
	}
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))...)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	byPartition := make([][]*kgo.Record, len(c.PartitionInfos(topic)))
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "is a transaction open?")
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				byPartition[r.Partition] = append(byPartition[r.Partition], r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	for _, p := range byPartition {
		records = append(records, p...)
	}
	return records
}

// requireOnce checks that a consumer gets exactly these events, each once, and those of an
// environment in order.
func requireOnce(t testing.TB, c *cluster, events []relay.Event) {
	t.Helper()
	want, got := map[string][]string{}, map[string][]string{}
	for i := range events {
		want[events[i].Source] = append(want[events[i].Source], events[i].ID)
	}
	for _, r := range c.committed(t, testTopic) {
		source := header(t, r, "ce_source")
		got[source] = append(got[source], header(t, r, "ce_id"))
	}
	require.Equal(t, want, got)
}

func spreadEvents(n int) []relay.Event {
	return inJournal(relaytest.Events(n, relaytest.Environments("acme/a", "acme/b", "acme/c", "acme/d", "acme/e")))
}

func TestWhatTheTopicHasIsSkipped(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(100)
	first := c.live(t, Options{}, nil)
	require.NoError(t, first.Deliver(t.Context(), events[:40]))
	require.NoError(t, first.Deliver(t.Context(), events[40:50]))
	require.NoError(t, first.Deliver(t.Context(), events[:50]), "all of it is there")

	// The journal cuts its batches in other places after a restart: here in the middle of a record.
	second := c.live(t, Options{}, nil)
	require.NoError(t, second.Deliver(t.Context(), events[30:49]))
	require.NoError(t, second.Deliver(t.Context(), events[49:70]))
	require.NoError(t, second.Deliver(t.Context(), events[70:]))
	requireOnce(t, c, events)
}

// An event without a place in the journal is never taken for one that is there.
func TestEventsOfNoJournalAreNotSkipped(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(9)
	s := c.live(t, Options{}, nil)
	require.NoError(t, s.Deliver(t.Context(), events))
	foreign := relaytest.Events(2, relaytest.From(500))
	require.NoError(t, s.Deliver(t.Context(), foreign))
	require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events), "its position is as before")
	requireOnce(t, c, append(events, foreign...))
}

// A replay neither fences the live sink nor skips what is at an old place.
func TestReplaysHaveNoTransactions(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(9)
	s := c.live(t, Options{}, nil)
	require.NoError(t, s.Deliver(t.Context(), events[:6]))
	replay := c.sink(t, func(cfg *config.Kafka) { cfg.Delivery = "exactly_once" })
	require.NoError(t, replay.Deliver(t.Context(), events[2:3]))
	require.NoError(t, s.Deliver(t.Context(), events[6:]))
	assert.Len(t, c.committed(t, testTopic), 10)
}

// steps are the requests of a session, in order.
var steps = []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.InitProducerID, kmsg.ListOffsets, kmsg.Fetch, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn}

// A crash at any step: before the broker has seen the request, and after it has done what it says. The next
// process gets everything again that was not acknowledged.
func TestACrashAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		for _, done := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %t, restart %t", step.Name(), done, restart), func(t *testing.T) {
					t.Parallel()
					testCrash(t, step, done, restart)
				})
			}
		}
	}
}

func testCrash(t *testing.T, step kmsg.Key, done, restart bool) {
	t.Helper()
	c, events := onceCluster(t), spreadEvents(60)
	require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events[:20]))
	s := c.live(t, Options{}, nil)
	hit := c.fail(step, done)
	err := s.Deliver(t.Context(), events[10:40])
	require.True(t, hit.hit.Load(), "the step was not reached")
	if err != nil && restart {
		require.NoError(t, s.Close())
		s = c.live(t, Options{}, nil)
	}
	if err != nil {
		require.NoError(t, s.Deliver(t.Context(), events[10:40]))
	}
	require.NoError(t, s.Deliver(t.Context(), events[40:]))
	requireOnce(t, c, events)
}

// lost is a connection that breaks once.
type lost struct{ hit, off atomic.Bool }

// fail breaks the connection at the next request of a kind, or instead of its answer.
func (c *cluster) fail(step kmsg.Key, done bool) *lost {
	l := &lost{}
	c.ControlKey(int16(step), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.DropControl()
		if l.off.Load() {
			return nil, nil, false
		}
		l.hit.Store(true)
		if done {
			c.gate.swallow.Store(true)
			return nil, nil, false
		}
		return nil, io.ErrUnexpectedEOF, true
	})
	return l
}

// Faults of every kind at random steps, restarts, and events that come again: nothing is lost, and
// nothing is there twice.
func TestExactlyOnceUnderRandomFaults(t *testing.T) {
	t.Parallel()
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			testRandomFaults(t, rand.New(rand.NewPCG(uint64(seed), 1)))
		})
	}
}

func testRandomFaults(t *testing.T, rng *rand.Rand) {
	t.Helper()
	codes := []*kerr.Error{
		kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.NotLeaderForPartition, kerr.InvalidTxnState, kerr.InvalidProducerEpoch,
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.CoordinatorLoadInProgress,
	}
	c, events := onceCluster(t), spreadEvents(300)
	s := c.live(t, Options{}, nil)
	for at, tries := 0, 0; at < len(events); tries++ {
		require.Less(t, tries, 2000, "there is no progress")
		step, remove := steps[rng.IntN(len(steps))], func() {}
		switch what := rng.IntN(4); what {
		case 0:
			remove = c.Fault(kfake.Fault{Keys: []kmsg.Key{step}, TopLevel: rng.IntN(2) == 0, Err: codes[rng.IntN(len(codes))]}).Remove
		case 1, 2:
			broken := c.fail(step, what == 2)
			remove = func() { broken.off.Store(true) }
		}
		end := min(len(events), at+1+rng.IntN(40))
		err := s.Deliver(t.Context(), events[at:end])
		remove()
		c.gate.swallow.Store(false)
		var partial *relay.PartialError
		require.False(t, errors.As(err, &partial), "%v", err)
		if err == nil && rng.IntN(4) > 0 { // otherwise the relay dies before it has noted that
			at = end
		}
		if rng.IntN(3) == 0 {
			require.NoError(t, s.Close())
			s = c.live(t, Options{}, nil)
			at = max(0, at-rng.IntN(20)) // an older position, as after a power cut
		}
	}
	requireOnce(t, c, events)
}

// A relay that was thought dead commits nothing after another one has begun, not even a
// transaction that was complete but for that.
func TestAZombieIsFenced(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(60)
	zombie := c.live(t, Options{}, nil)
	require.NoError(t, zombie.Deliver(t.Context(), events[:20]))
	asleep, wake := make(chan struct{}), make(chan struct{})
	var others atomic.Bool
	c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !others.Swap(true) {
			c.SleepControl(func() { close(asleep); <-wake })
		}
		return nil, nil, false
	})
	late := make(chan error, 1)
	go func() { late <- zombie.Deliver(t.Context(), events[20:40]) }()
	<-asleep
	s := c.live(t, Options{}, nil)
	require.NoError(t, s.Deliver(t.Context(), events[10:30]))
	close(wake)
	err := <-late
	require.ErrorContains(t, err, "commit the transaction")
	require.ErrorContains(t, err, "another process has the sink's transactional id")

	// Should it begin again, in spite of that, it learns what the other one has delivered.
	require.NoError(t, zombie.Deliver(t.Context(), events[20:40]))
	require.Error(t, s.Deliver(t.Context(), events[30:50]), "now this one is fenced")
	require.NoError(t, s.Deliver(t.Context(), events[30:50]))
	require.NoError(t, s.Deliver(t.Context(), events[50:]))
	requireOnce(t, c, events)
}

// A position that may not be believed leads to events that are there twice, and never to a loss.
func TestPositionsThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		journal *Journal
		value   string // is written over the position
		says    string
	}{
		"another journal":        {&Journal{ID: "5a", Stream: "5a.2", Holds: journal(99).Holds}, "", "of another journal"},
		"a journal set back":     {journal(2), "", "it was set back"},
		"another record":         {journal(99), `{"version":1,"stream":"5a.1","sequence":3,"events":3,"checksum":"22"}`, "it was set back"},
		"a value of another one": {journal(99), `position 9`, "cannot be read"},
		"forgotten by a person":  {journal(99), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, events := onceCluster(t), spreadEvents(9)
			require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events))
			if test.value != "" || test.says == "" {
				c.writePosition(t, []byte(test.value))
			}
			var output waiting.Output
			s := c.live(t, Options{Journal: test.journal, Logger: slog.New(slog.NewTextHandler(&output, nil))}, nil)
			require.NoError(t, s.Deliver(t.Context(), events))
			assert.Contains(t, output.String(), test.says)
			require.Len(t, c.committed(t, testTopic), 18)
			require.NoError(t, s.Deliver(t.Context(), events))
			require.Len(t, c.committed(t, testTopic), 18, "its own position is believed")
		})
	}
}

// writePosition writes a value under the sink's key; an empty one is a tombstone.
func (c *cluster) writePosition(t *testing.T, value []byte) {
	t.Helper()
	if len(value) == 0 {
		value = nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: positionTopic, Key: []byte("auditrelay.5a.test"), Value: value}).FirstErr())
}

func TestPositionsThatStopTheSink(t *testing.T) {
	t.Parallel()
	for value, says := range map[string]string{
		`{"version":2,"stream":"5a.1"}`:           "update the relay",
		`{"version":1,"stream":"5a.1","epoch":4}`: "another relay has taken over",
	} {
		c := onceCluster(t)
		c.writePosition(t, []byte(value))
		j := journal(9)
		j.Epoch = func(context.Context) (uint64, error) { return 3, nil }
		err := c.live(t, Options{Journal: j}, nil).Deliver(t.Context(), spreadEvents(3))
		require.ErrorContains(t, err, says)
		require.Empty(t, c.committed(t, testTopic))
	}
}

// The epoch of the job is in the position, and a relay without the job fences nobody.
func TestTheJobsEpoch(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(9)
	first, second := journal(9), journal(9)
	first.Epoch = func(context.Context) (uint64, error) { return 3, nil }
	second.Epoch = func(context.Context) (uint64, error) { return 0, errors.New("not mine") }
	s := c.live(t, Options{Journal: first}, nil)
	require.NoError(t, s.Deliver(t.Context(), events[:3]))
	require.ErrorContains(t, c.live(t, Options{Journal: second}, nil).Deliver(t.Context(), events), "not mine")
	require.NoError(t, s.Deliver(t.Context(), events[3:]))
	positions := c.committed(t, positionTopic)
	require.Len(t, positions, 2)
	assert.JSONEq(t, `{"version":1,"stream":"5a.1","sequence":3,"events":3,"checksum":"21","epoch":3}`, string(positions[1].Value))
}

// The sink of somebody else has a transaction open in the same position topic: the position may be
// beyond it, so nothing is delivered before it ends.
func TestThePositionIsReadToTheEnd(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(9)
	first := c.live(t, Options{}, nil)
	require.NoError(t, first.Deliver(t.Context(), events[:3]))
	other, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("other"))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.BeginTransaction())
	require.NoError(t, other.ProduceSync(t.Context(), &kgo.Record{Topic: positionTopic, Key: []byte("o")}).FirstErr())
	require.NoError(t, first.Deliver(t.Context(), events[3:]))

	s := c.live(t, Options{}, nil)
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: positionTopic, Observe: true, Count: -1})
	done := make(chan error, 1)
	go func() { done <- s.Deliver(t.Context(), events) }()
	require.NoError(t, asked.Wait(t.Context(), 2))
	select {
	case err := <-done:
		require.Fail(t, "it did not wait", "%v", err)
	default:
	}
	require.NoError(t, other.EndTransaction(t.Context(), kgo.TryAbort))
	require.NoError(t, <-done)
	requireOnce(t, c, events)
}

// A sink's position is found among those of a hundred thousand later transactions of other sinks, and
// where it is one of the newest, little is read.
func TestThePositionIsSoughtFromTheEnd(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t), spreadEvents(9)
	require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events[:6]))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	var others []*kgo.Record
	for i := range 100_000 {
		others = append(others, &kgo.Record{Topic: positionTopic, Key: []byte("another"), Value: []byte(strconv.Itoa(i))})
	}
	require.NoError(t, client.ProduceSync(t.Context(), others...).FirstErr())
	require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events))
	requireOnce(t, c, events)

	var lowest atomic.Int64
	lowest.Store(math.MaxInt64)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: positionTopic, Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		at := r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset
		lowest.Store(min(lowest.Load(), at))
		return true
	}})
	require.NoError(t, c.live(t, Options{}, nil).Deliver(t.Context(), events), "all of it is there")
	requireOnce(t, c, events)
	assert.GreaterOrEqual(t, lowest.Load(), int64(len(others)-firstLook), "the offset from which on it was read")
}

// Of a delivery with a refused event nothing is committed, so that the position does not pass over
// an event that is not in the dead letters yet. Then the others go at once.
func TestARefusedEventGoesFirst(t *testing.T) {
	t.Parallel()
	c, events := onceCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "60000"})), spreadEvents(30)
	for _, i := range []int{7, 20} {
		events[i].Body = []byte(incompressible(100_000))
	}
	s := c.live(t, Options{}, nil)
	require.NoError(t, s.Deliver(t.Context(), events[:3]))
	err := s.Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 27, "all that are not there yet")
	for _, f := range partial.Failures {
		require.Equal(t, f.Index == 7 || f.Index == 20, relay.IsPermanent(f.Err), "%d: %v", f.Index, f.Err)
		require.Equal(t, f.Index != 7 && f.Index != 20, errors.Is(f.Err, relay.ErrUntried), "%d: %v", f.Index, f.Err)
	}
	requireOnce(t, c, events[:3])

	source, dead := relaytest.NewSource(events), &relaytest.DeadLetters{}
	pump := relay.Pump{Name: "test", Source: source, Sink: s, DeadLetters: dead, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = pump.Run(ctx) })
	waiting.Until(t, func() bool { return len(source.Acks()) == 1 }, "the batch was not acknowledged")
	cancel()
	running.Wait()
	requireOnce(t, c, slices.Concat(events[:7], events[8:20], events[21:]))
	var refused []string
	for _, r := range dead.Kept("test") {
		refused = append(refused, r.Event.ID)
	}
	assert.Equal(t, []string{events[7].ID, events[20].ID}, refused)
}

func incompressible(n int) string {
	rng, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return string(b)
}

func TestNumbersGoRound(t *testing.T) {
	t.Parallel()
	n := numbers{next: math.MaxInt32 - 1}
	n.advance(1)
	require.EqualValues(t, math.MaxInt32, n.next)
	n.advance(3)
	require.EqualValues(t, 2, n.next)
}

func TestCheckOfExactlyOnce(t *testing.T) {
	t.Parallel()
	findings := func(s *Sink) (string, error) {
		var text strings.Builder
		err := s.Check(t.Context(), func(what, found string) { fmt.Fprintf(&text, "%s: %s\n", what, found) })
		return text.String(), err
	}
	c := onceCluster(t)
	once := func(cfg *config.Kafka) { cfg.Delivery = "exactly_once" }
	text, err := findings(c.sink(t, once))
	require.NoError(t, err, text)
	assert.Contains(t, text, "isolation.level=read_committed")
	assert.Contains(t, text, "topic auditrelay.positions.test: has the position")

	c = newCluster(t)
	text, err = findings(c.sink(t, once))
	require.ErrorContains(t, err, "does not exist: make it, with one partition and cleanup.policy=compact, or set create_topic", text)
	created := func(cfg *config.Kafka) { cfg.Delivery, cfg.CreateTopic = "exactly_once", true }
	text, err = findings(c.sink(t, created))
	require.NoError(t, err, text)
	assert.Contains(t, text, "would be created, with one partition and cleanup.policy=compact")
	assert.Nil(t, c.TopicInfo(positionTopic), "it was only asked for")
	require.NoError(t, c.live(t, Options{}, created).Deliver(t.Context(), spreadEvents(3)))
	assert.Equal(t, "compact", *c.TopicInfo(positionTopic).Configs[cleanup])
}
