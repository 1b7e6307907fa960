package journal

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The same journal on JetStream: positions and backlogs survive a restart, trimming waits for
// every sink, and records of any age can be read back.
func TestAJournalOnACluster(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	cfg, dir := testConfig, t.TempDir()
	cfg.URL = srv.ClientURL()
	begin := func() (*opened, func()) {
		reg := prometheus.NewRegistry()
		s, err := cluster.Open(t.Context(), cluster.Config{Journal: cfg, Dir: dir, Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: reg})
		require.NoError(t, err)
		names, err := OpenQuarantine(t.Context(), s, QuarantineOptions{Logger: silent, Registerer: reg})
		require.NoError(t, err)
		set, err := Open(t.Context(), s, cfg, Options{Logger: silent, Registerer: reg, Quarantine: names})
		require.NoError(t, err)
		return &opened{Journal: set.Logs()[0], names: names, reg: reg}, func() {
			set.Close()
			require.NoError(t, names.Close())
			require.NoError(t, s.Close())
		}
	}
	j, end := begin()
	events := relaytest.Events(40)
	for i := 0; i < len(events); i += 4 {
		j.push(t, events[i:i+4])
	}
	late := j.source(t, "late")
	s := j.source(t, "k")
	read(t, s, 20, true)
	s.Close()
	late.Close()
	end()

	j, end = begin()
	defer end()
	n, err := j.trimAll(t)
	require.NoError(t, err)
	assert.Zero(t, n, "late has had nothing")
	s = j.source(t, "k")
	defer s.Close()
	b, reading := j.Backlog("k")
	require.True(t, reading)
	left := int(b.Events)
	assert.LessOrEqual(t, left, 20)
	assert.Equal(t, ids(events[40-left:]), ids(read(t, s, left, true)))
	late = j.source(t, "late")
	defer late.Close()
	assert.Equal(t, ids(events), ids(read(t, late, 40, true)))
	require.NoError(t, j.table.Sync(t.Context()))
	n, err = j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 10, n)
	j.push(t, events[:4])
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, u.Records)
}

// shared is the journal of one of several relays on a cluster.
type shared struct {
	*opened
	store *cluster.Store
}

// share opens the journal of a further relay.
func share(t *testing.T, url string, with ...func(*Options)) *shared {
	t.Helper()
	cfg, reg := testConfig, prometheus.NewRegistry()
	cfg.URL = url
	s, err := cluster.Open(t.Context(), cluster.Config{Journal: cfg, Dir: t.TempDir(), Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: reg})
	require.NoError(t, err)
	names, err := OpenQuarantine(t.Context(), s, QuarantineOptions{Logger: silent, Registerer: reg})
	require.NoError(t, err)
	opts := Options{
		Logger: silent, Registerer: reg, Quarantine: names, Shared: true,
		Others: func([]relay.Event, uint64) {}, Epoch: func() uint64 { return 0 }, Check: func(context.Context) error { return nil },
	}
	for _, change := range with {
		change(&opts)
	}
	set, err := Open(t.Context(), s, cfg, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		set.Close()
		assert.NoError(t, names.Close())
		assert.NoError(t, s.Close())
	})
	return &shared{&opened{Journal: set.Logs()[0], names: names, reg: reg}, s}
}

// takes gives the relay the turn of a job.
func (s *shared) takes(t *testing.T, job string) *lease.Turn {
	t.Helper()
	rev, err := s.store.Table().Put(t.Context(), "cluster/epoch/"+job, []byte("{}"), store.If{})
	require.NoError(t, err)
	return lease.NewTurn(job, lease.Epoch{Rev: rev, Number: rev})
}

func (s *shared) under(t *testing.T, turn *lease.Turn, sink string) *Source {
	t.Helper()
	source, err := s.SourceUnder(t.Context(), turn, sink, relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	return source
}

func (s *shared) trimAll(t *testing.T) error {
	t.Helper()
	_, err := s.Trim(t.Context(), time.Now().Add(time.Hour))
	return err
}

// Of two relays on a cluster, the one that has lost its turn moves no position and trims
// nothing, whatever it has read.
func TestNoPositionMovesAfterTheTurn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	j, other := share(t, srv.ClientURL()), share(t, srv.ClientURL())
	sink, control := j.takes(t, "sink/k"), j.takes(t, "control")
	j.set.TrimUnder(control)
	events := relaytest.Events(8)
	j.push(t, events[:4])
	source := j.under(t, sink, "k")
	read(t, source, 4, true)
	require.NoError(t, j.table.Sync(t.Context()))
	before, err := j.table.Get(t.Context(), keysOf(0).position+"k")
	require.NoError(t, err)

	other.takes(t, "sink/k")
	j.push(t, events[4:])
	read(t, source, 4, true)
	require.ErrorIs(t, j.table.Sync(t.Context()), store.ErrConflict)
	after, err := j.table.Get(t.Context(), keysOf(0).position+"k")
	require.NoError(t, err)
	assert.Equal(t, before, after)

	require.NoError(t, j.trimAll(t), "the position that was refused is none of its own, and the turn to trim is")
	assert.EqualValues(t, 1, j.Trimmed(), "the record that the standing position covers")
	other.takes(t, "control")
	next := other.under(t, other.takes(t, "sink/k"), "k")
	read(t, next, 4, true)
	require.NoError(t, other.table.Sync(t.Context()))
	require.ErrorIs(t, j.trimAll(t), store.ErrConflict)
	require.NoError(t, other.trimAll(t), "without the turn it only looks")
	state, err := j.events.State(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, state.First, "nobody has trimmed")
}

// What a relay delivers although another one has taken the sink over comes twice, and is counted.
func TestWhatIsDeliveredTwiceAtATakeoverIsCounted(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	sinks := func(o *Options) { o.Sinks = []string{"k"} }
	j, other := share(t, srv.ClientURL(), sinks), share(t, srv.ClientURL(), sinks)
	overlap := func(s *shared) float64 { return s.metric(t, "auditrelay_sink_overlap_events_total") }
	events := relaytest.Events(12)
	j.push(t, events[:4])
	source := j.under(t, j.takes(t, "sink/k"), "k")
	read(t, source, 4, true)
	require.NoError(t, j.table.Sync(t.Context()))
	next := other.under(t, other.takes(t, "sink/k"), "k")
	for i := 4; i < 12; i += 4 {
		j.push(t, events[i:i+4])
	}
	read(t, source, 8, true)
	assert.Equal(t, ids(events[4:]), ids(read(t, next, 8, true)))
	require.NoError(t, other.table.Sync(t.Context()))
	source.Close()
	assert.InDelta(t, 8, overlap(j), 0)

	j.under(t, j.takes(t, "sink/k"), "k")
	next.Close()
	assert.InDelta(t, 0, overlap(other), 0, "it has delivered nothing after it was replaced")
}

// A relay whose configuration lacks a new sink trims nothing that the sink has not had, even if
// it was frozen in the middle of a trim.
func TestAnOlderConfigurationTrimsNothingOfANewSink(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	old := share(t, srv.ClientURL(), func(o *Options) { o.Sinks = []string{"k"} })
	old.set.TrimUnder(old.takes(t, "control"))
	k := old.under(t, old.takes(t, "sink/k"), "k")
	events := relaytest.Events(9)
	for i := range 6 {
		old.push(t, events[i:i+1])
	}
	read(t, k, 6, true)

	newer := share(t, srv.ClientURL(), func(o *Options) { o.Sinks = []string{"k", "new"} })
	require.NoError(t, old.trimAll(t))
	assert.Zero(t, old.Trimmed(), "the new sink is registered, and has had nothing")
	added := newer.under(t, newer.takes(t, "sink/new"), "new")
	assert.Equal(t, ids(events[:6]), ids(read(t, added, 6, true)))
	require.NoError(t, newer.table.Sync(t.Context()))
	require.NoError(t, old.trimAll(t))
	assert.EqualValues(t, 6, old.Trimmed())

	// It has announced a trim, and is frozen before the purge.
	for i := range 3 {
		old.push(t, events[6+i:7+i])
	}
	read(t, k, 3, true)
	read(t, added, 3, true)
	require.NoError(t, newer.table.Sync(t.Context()))
	require.NoError(t, old.table.Sync(t.Context()))
	free, err := old.standing(t.Context())
	require.NoError(t, err)
	keep, err := old.announce(t.Context(), free.end-1, &free)
	require.NoError(t, err)
	require.Equal(t, free.end-1, keep)
	latest := share(t, srv.ClientURL(), func(o *Options) { o.Sinks = []string{"k", "new", "latest"} })
	late := latest.under(t, latest.takes(t, "sink/latest"), "latest")
	_, err = old.drop(t.Context(), keep, &free.state)
	require.NoError(t, err)
	assert.Equal(t, ids(events[8:]), ids(read(t, late, 1, true)), "it begins where the announced trim ends, and lacks nothing after that")
}

// Each relay knows what the others take: their events are given on once, counted as undelivered
// bytes of their sources, and in the number of all events.
func TestAJournalFollowsTheOtherRelays(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	heard := make(chan string, 100)
	told := func(o *Options) {
		o.Others = func(events []relay.Event, epoch uint64) {
			assert.EqualValues(t, 7, epoch)
			for i := range events {
				heard <- events[i].ID
			}
		}
		o.Epoch = func() uint64 { return 7 }
	}
	a, b := share(t, srv.ClientURL(), told), share(t, srv.ClientURL())
	sealed := make(chan Sealed, 10)
	a.Seal(func(s Sealed) { sealed <- s })
	events := relaytest.Events(9)
	a.push(t, events[:3])
	b.push(t, events[3:6])
	a.push(t, events[6:])
	for _, id := range ids(events[3:6]) {
		assert.Equal(t, id, <-heard)
	}
	positions := map[uint64]int{}
	for range 3 {
		s := <-sealed
		positions[s.Position] += s.Events
	}
	assert.Equal(t, map[uint64]int{1: 3, 2: 3, 3: 3}, positions)
	assert.Empty(t, heard, "its own events are none of another relay")
	s := a.under(t, a.takes(t, "sink/k"), "k")
	backlog, reading := a.Backlog("k")
	require.True(t, reading)
	assert.EqualValues(t, 9, backlog.Events)
	read(t, s, 9, true)
	waiting.Until(t, func() bool { backlog, _ := a.Backlog("k"); return backlog.Events == 0 })
	held := a.budget.bySource()
	assert.Positive(t, held[events[3].Source])
}

// The cluster lost a sink's position and its name with the table's end. Nothing is trimmed that the
// sink lacks, as far as anybody can know, and it gets everything that is kept.
func TestTheClusterLosesAPosition(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	sinks := func(o *Options) { o.Sinks = []string{"k"} }
	j := share(t, srv.ClientURL(), sinks)
	events := relaytest.Events(6)
	for i := range events {
		j.push(t, events[i:i+1])
	}
	source := j.under(t, j.takes(t, "sink/k"), "k")
	read(t, source, 6, true)
	require.NoError(t, j.table.Sync(t.Context()))
	source.Close()
	stream, err := natstest.JetStream(t, srv).Stream(t.Context(), "TEST_TABLE")
	require.NoError(t, err)
	for _, key := range []string{"position", "sink"} {
		require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("TEST_TABLE.key."+key+".k")))
	}
	other := share(t, srv.ClientURL(), sinks)
	other.set.TrimUnder(other.takes(t, "control"))
	require.NoError(t, other.trimAll(t))
	assert.Zero(t, other.Trimmed())
	assert.Equal(t, ids(events), ids(read(t, other.under(t, other.takes(t, "sink/k"), "k"), 6, true)))
}
