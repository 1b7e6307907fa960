package deadletters

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// opened is a store on an embedded server.
type opened struct{ *Store }

var testConfig = config.Journal{StreamPrefix: "TEST", Replicas: 1}

func open(t testing.TB, dir string, cfg config.Journal) *opened {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), dir, cfg, log)
	require.NoError(t, err)
	s, err := Open(t.Context(), conn, cfg, log, prometheus.NewRegistry())
	require.NoError(t, err)
	return &opened{s}
}

func (o *opened) shut(t testing.TB) {
	t.Helper()
	require.NoError(t, o.conn.Close())
}

func ids(events []relay.Event) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func rejectionsOf(events []relay.Event, reason string) []relay.Rejection {
	out := make([]relay.Rejection, len(events))
	for i := range events {
		out[i] = relay.Rejection{Event: events[i], Reason: reason, Attempts: 1}
	}
	return out
}

// letterIDs are the events of all dead letters, in their order.
func (o *opened) letterIDs(t *testing.T, f Filter) []string {
	t.Helper()
	var got []string
	require.NoError(t, o.Find(t.Context(), f, func(d Letter) bool {
		assert.Empty(t, d.Damage)
		got = append(got, d.Event.ID)
		return true
	}))
	return got
}

var _ relay.DeadLetters = (*Store)(nil)

func TestDeadLettersAreKeptByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, testConfig)
	events := relaytest.Events(2)
	require.NoError(t, s.Reject(t.Context(), "kafka", []relay.Rejection{
		{Event: events[0], Reason: "too\nlarge", Attempts: 3}, {Event: events[1], Reason: "x", Attempts: 1},
	}))
	s.shut(t)
	s = open(t, dir, testConfig)
	defer s.shut(t)
	var got []Letter
	require.NoError(t, s.Find(t.Context(), Filter{}, func(d Letter) bool { got = append(got, d); return true }))
	require.Len(t, got, 2)
	assert.Equal(t, "kafka", got[0].Sink)
	assert.Equal(t, "too large", got[0].Reason)
	assert.Equal(t, 3, got[0].Attempts)
	assert.WithinDuration(t, time.Now(), got[0].Time, time.Minute)
	assert.Equal(t, events[0], got[0].Event)
	assert.Equal(t, events[1], got[1].Event)
}

// Many letters are one batch, yet each is read and removed by itself. A restart changes
// nothing.
func TestManyDeadLettersAreKeptAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, testConfig)
	events := relaytest.Events(2*batchLetters + 7)
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events, "no")))
	require.Equal(t, ids(events), s.letterIDs(t, Filter{}))
	require.NoError(t, s.removeOne(t.Context(), 3))
	s.shut(t)
	s = open(t, dir, testConfig)
	defer s.shut(t)
	want := slices.Delete(ids(events), 2, 3)
	require.Equal(t, want, s.letterIDs(t, Filter{Sink: "k"}))
	d, ok, err := s.Get(t.Context(), batchLetters+1)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, events[batchLetters], d.Event)
	_, ok, err = s.Get(t.Context(), 3)
	require.NoError(t, err)
	assert.False(t, ok)
}

// commits counts the batches of letters, and the single letters.
func commits(t *testing.T, s *opened) (batches, single int) {
	t.Helper()
	seen := map[string]bool{}
	info, err := s.stream.Info(t.Context())
	require.NoError(t, err)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := s.stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		if id := m.Header.Get(headerBatch); id == "" {
			single++
		} else {
			seen[id] = true
		}
	}
	return len(seen), single
}

// A flood of refusals costs a handful of syncs for a thousand letters, not one each.
func TestDeadLettersShareSyncs(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), testConfig)
	defer s.shut(t)
	events := relaytest.Events(5 * batchLetters / 2)
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events, "no")))
	batches, single := commits(t, s)
	assert.Equal(t, 3, batches)
	assert.Zero(t, single)
	for i := range events[:3] {
		events[i].Body = make([]byte, 3<<20) // two do not fit into one batch
		copy(events[i].Body, randomBytes(3<<20))
	}
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events[:3], "no")))
	batches, single = commits(t, s)
	assert.Equal(t, 3, batches)
	assert.Equal(t, 3, single)
}

func randomBytes(n int) []byte {
	out := make([]byte, n)
	state := uint64(1)
	for i := range out {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		out[i] = byte(state)
	}
	return out
}

// A server without batches, or forbidden to use them, gets the letters one by one.
func TestDeadLettersWithoutBatches(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), testConfig)
	defer s.shut(t)
	cfg := s.stream.CachedInfo().Config
	cfg.AllowAtomicPublish = false
	_, err := s.conn.JetStream.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	events := relaytest.Events(50)
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events[:25], "no")), "it learns of it by the refusal")
	s.stream, err = s.conn.JetStream.Stream(t.Context(), s.name)
	require.NoError(t, err)
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events[25:], "no")), "it knows")
	got := s.letterIDs(t, Filter{Sink: "k"})
	slices.Sort(got)
	want := ids(events)
	slices.Sort(want)
	require.Equal(t, want, got)
	batches, single := commits(t, s)
	assert.Zero(t, batches)
	assert.Equal(t, 50, single)
}

// Each environment has a budget at each sink. What is beyond it is kept all the same, as a
// sink that waits would hold up all others, and is told, over a restart too.
func TestDeadLettersHaveABudget(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.DeadLetterBytes = 64 << 10
	dir := t.TempDir()
	s := open(t, dir, cfg)
	var told []map[string]int64
	listen := func() {
		require.NoError(t, s.Beyond(t.Context(), func(now map[string]int64) { told = append(told, now) }))
	}
	listen()
	flood, one := relaytest.Events(1000, relaytest.BodyBytes(500)), relaytest.Events(1)
	for i := range flood {
		flood[i].Source = "/projects/acme/environments/..odd slug.>*"
	}
	one[0].Source = relay.TrailSource
	kept := 0
	for ; len(told[len(told)-1]) == 0; kept += 10 {
		require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(flood[kept:kept+10], "no")))
	}
	beyond := told[len(told)-1]
	require.Len(t, beyond, 1)
	require.Positive(t, beyond[flood[0].Source])
	require.Less(t, beyond[flood[0].Source], int64(16<<10), "one delivery at most")
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(one, "no")), "nobody else waits")
	require.NoError(t, s.Reject(t.Context(), "other", rejectionsOf(flood[:1], "no")))
	require.Equal(t, beyond, told[len(told)-1], "another sink has a budget of its own")
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(flood[:10], "no")), "nothing is dropped")
	require.Greater(t, told[len(told)-1][flood[0].Source], beyond[flood[0].Source])
	require.Len(t, s.letterIDs(t, Filter{}), kept+12)

	usage, err := s.Usage(t.Context())
	require.NoError(t, err)
	k := usage["k"]
	require.Equal(t, uint64(kept+11), k.Letters) //nolint:gosec // a count
	source, bytes := k.Fullest()
	require.Equal(t, flood[0].Source, source)
	require.Equal(t, k.Bytes, bytes+k.BySource[relay.TrailSource])
	info, err := s.stream.Info(t.Context())
	require.NoError(t, err)
	all := k.Bytes + usage["other"].Bytes
	assert.GreaterOrEqual(t, all, int64(info.State.Bytes), "it is an upper bound") //nolint:gosec // a few bytes
	assert.Less(t, all, int64(info.State.Bytes)*13/10)                             //nolint:gosec // as above

	s.shut(t)
	s = open(t, dir, cfg)
	defer s.shut(t)
	told = nil
	listen()
	require.Positive(t, told[0][flood[0].Source])
	var oldest []uint64
	for seq := range uint64(30) {
		oldest = append(oldest, seq+1)
	}
	require.NoError(t, s.Remove(t.Context(), "k", oldest))
	require.Empty(t, told[len(told)-1])
}

// A purge takes no other letter along: neither another sink's, nor an unnamed one of the
// same sink.
func TestDeadLettersAreRemovedAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), testConfig)
	defer s.shut(t)
	events := relaytest.Events(100)
	var a, b []string
	sequences := map[string][]uint64{}
	for i := range 10 {
		sink := []string{"a", "ab"}[i%2]
		require.NoError(t, s.Reject(t.Context(), sink, rejectionsOf(events[10*i:10*i+10], "no")))
		for n := range 10 {
			sequences[sink] = append(sequences[sink], uint64(10*i+n+1)) //nolint:gosec // small
		}
		if i%2 == 0 {
			a = append(a, ids(events[10*i:10*i+10])...)
		} else {
			b = append(b, ids(events[10*i:10*i+10])...)
		}
	}
	state := func(whole bool, named []uint64, left []string) {
		t.Helper()
		oldest, err := s.areOldest(t.Context(), "a", named)
		require.NoError(t, err)
		assert.Equal(t, whole, oldest)
		require.NoError(t, s.Remove(t.Context(), "a", named))
		assert.Equal(t, left, s.letterIDs(t, Filter{Sink: "a"}))
		assert.Equal(t, b, s.letterIDs(t, Filter{Sink: "ab"}))
	}
	state(true, sequences["a"][:20], a[20:])
	state(false, sequences["a"][21:40], append([]string{a[20]}, a[40:]...))
	require.NoError(t, s.Remove(t.Context(), "a", sequences["a"][20:21]))
	state(true, sequences["a"], nil)
	require.NoError(t, s.Remove(t.Context(), "a", nil))
}

// Letters of earlier versions stand under the sink's name alone, one published by
// itself. They are counted, found and removed as the others are.
func TestDeadLettersOfEarlierVersions(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), testConfig)
	defer s.shut(t)
	events := relaytest.Events(4)
	for i := range events[:2] {
		m := s.message("k", &relay.Rejection{Event: events[i], Reason: "old", Attempts: 1})
		m.Subject = s.subject + ".k"
		_, err := s.conn.JetStream.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	require.NoError(t, s.Reject(t.Context(), "k", rejectionsOf(events[2:3], "new")))
	require.NoError(t, s.Reject(t.Context(), "kk", rejectionsOf(events[3:], "new")))
	assert.Equal(t, ids(events), s.letterIDs(t, Filter{}))
	assert.Equal(t, ids(events[:3]), s.letterIDs(t, Filter{Sink: "k"}))
	assert.Equal(t, ids(events[3:]), s.letterIDs(t, Filter{Sink: "kk"}))
	usage, err := s.Usage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(3), usage["k"].Letters)
	assert.Greater(t, usage["k"].Bytes, 2*usage["kk"].Bytes)
	require.NoError(t, s.removeOne(t.Context(), 1))
	require.NoError(t, s.removeOne(t.Context(), 2))
	assert.Equal(t, ids(events[2:3]), s.letterIDs(t, Filter{Sink: "k"}))
}

// A passing failure is told as such, and leaves nothing behind.
func TestBatchErrors(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), testConfig)
	defer s.shut(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Reject(ctx, "k", rejectionsOf(relaytest.Events(3), "no"))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, s.letterIDs(t, Filter{}))
	for data, want := range map[string]string{
		`{"error":{"code":400,"err_code":10176,"description":"atomic publish batch is incomplete"},"stream":"S","seq":0}`: "incomplete",
		`nonsense`: "read the answer to a batch",
	} {
		_, err := batchAck([]byte(data))
		require.ErrorContains(t, err, want)
	}
	n, err := batchAck([]byte(`{"stream":"S","seq":7,"batch":"b","count":20}`))
	require.NoError(t, err)
	assert.Equal(t, 20, n)
	var api *jetstream.APIError
	require.ErrorAs(t, error(&jetstream.APIError{ErrorCode: codeBatchDuplicate}), &api)
	assert.True(t, streams.HasCode(api, codeBatchDuplicate))
	assert.False(t, streams.HasCode(errors.New("x"), codeBatchDuplicate))
}

// A letter counts as kept once its block's name is durable. Here the folder cannot be
// synced, while the server writes on to the block that it has open.
func TestALetterWaitsForTheNameOfItsBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, testConfig)
	defer s.shut(t)
	refused := rejectionsOf(relaytest.Events(1), "no")
	require.NoError(t, s.Reject(t.Context(), "k", refused))
	folder := filepath.Join(datadir.StreamDir(dir, s.name), natsserver.MessagesDir)
	require.NoError(t, os.Rename(folder, folder+".away"))
	err := s.Reject(t.Context(), "k", refused)
	require.NoError(t, os.Rename(folder+".away", folder))
	require.ErrorContains(t, err, "newest block")
	require.NoError(t, s.Reject(t.Context(), "k", refused))
}
