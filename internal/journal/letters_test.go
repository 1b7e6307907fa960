package journal

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// letterIDs are the events of all dead letters, in their order.
func (o *opened) letterIDs(t *testing.T, f LetterFilter) []string {
	t.Helper()
	var got []string
	require.NoError(t, o.FindDeadLetters(t.Context(), f, func(d DeadLetter) bool {
		assert.Empty(t, d.Damage)
		got = append(got, d.Event.ID)
		return true
	}))
	return got
}

// Many letters are one batch, of which each is read and removed by itself; after a
// start they are as they were.
func TestManyDeadLettersAreKeptAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	events := relaytest.Events(2*lettersAtOnce + 7)
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events, "no")))
	require.Equal(t, ids(events), j.letterIDs(t, LetterFilter{}))
	require.NoError(t, j.RemoveDeadLetter(t.Context(), 3))
	j.shut(t)
	j = open(t, dir, testConfig)
	defer j.shut(t)
	want := slices.Delete(ids(events), 2, 3)
	require.Equal(t, want, j.letterIDs(t, LetterFilter{Sink: "k"}))
	d, ok, err := j.DeadLetter(t.Context(), lettersAtOnce+1)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, events[lettersAtOnce], d.Event)
	_, ok, err = j.DeadLetter(t.Context(), 3)
	require.NoError(t, err)
	assert.False(t, ok)
}

// commits counts the batches that the letters came in, and the letters by themselves.
func commits(t *testing.T, j *opened) (batches, single int) {
	t.Helper()
	seen := map[string]bool{}
	info, err := j.dead.Info(t.Context())
	require.NoError(t, err)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := j.dead.GetMsg(t.Context(), seq)
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
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	events := relaytest.Events(5 * lettersAtOnce / 2)
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events, "no")))
	batches, single := commits(t, j)
	assert.Equal(t, 3, batches)
	assert.Zero(t, single)
	for i := range events[:3] {
		events[i].Body = make([]byte, 3<<20) // two do not fit into one batch
		copy(events[i].Body, randomBytes(3<<20))
	}
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events[:3], "no")))
	batches, single = commits(t, j)
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

// A server that knows no batches, or may not use them, gets the letters one by one.
func TestDeadLettersWithoutBatches(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	cfg := j.dead.CachedInfo().Config
	cfg.AllowAtomicPublish = false
	_, err := j.conn.JetStream.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	events := relaytest.Events(50)
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events[:25], "no")), "it learns of it by the refusal")
	j.dead, err = j.conn.JetStream.Stream(t.Context(), j.names.dead)
	require.NoError(t, err)
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events[25:], "no")), "it knows")
	got := j.letterIDs(t, LetterFilter{Sink: "k"})
	slices.Sort(got)
	want := ids(events)
	slices.Sort(want)
	require.Equal(t, want, got)
	batches, single := commits(t, j)
	assert.Zero(t, batches)
	assert.Equal(t, 50, single)
}

// The server commits a batch, and its answer is lost with the connection. What is
// published again is recognised, whole.
func TestALostAnswerLeavesOneBatch(t *testing.T) {
	t.Parallel()
	j, p, messages := overLine(t)
	refused := rejectionsOf(relaytest.Events(20), "x")
	for n := range uint64(2) {
		kept := make(chan error, 1)
		p.until.Store(`"batch":`) // the answer to the commit
		go func() { kept <- j.Reject(t.Context(), "k", refused) }()
		waiting.Until(t, func() bool { return messages(j.names.dead) == 20*(n+1) })
		p.cut()
		require.NoError(t, <-kept)
		assert.Equal(t, 20*(n+1), messages(j.names.dead))
	}
}

// At its budget a sink's letters are refused, with what to do about it; others go on,
// and so do letters that are replayed and refused again. Room makes it go on.
func TestDeadLettersHaveABudget(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.DeadLetterBytes = 64 << 10
	j := open(t, t.TempDir(), cfg)
	defer j.shut(t)
	events := relaytest.Events(1000)
	var err error
	kept := 0
	for ; err == nil && kept < len(events); kept += 10 {
		err = j.Reject(t.Context(), "k", rejectionsOf(events[kept:kept+10], "no"))
	}
	require.ErrorIs(t, err, ErrLettersFull)
	require.ErrorContains(t, err, "journal.dead_letter_bytes (65536); its events wait in the journal until 'auditrelay deadletters replay --sink k' or discard makes room")
	kept -= 10
	usage, err := j.LetterUsage(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(kept), usage["k"].Letters) //nolint:gosec // a count
	require.GreaterOrEqual(t, usage["k"].Bytes, int64(64<<10))
	info, err := j.dead.Info(t.Context())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, usage["k"].Bytes, int64(info.State.Bytes), "it is an upper bound") //nolint:gosec // a few bytes
	assert.Less(t, usage["k"].Bytes, int64(info.State.Bytes)*13/10)                             //nolint:gosec // as above

	require.NoError(t, j.Reject(t.Context(), "other", rejectionsOf(events[:1], "no")))
	require.NoError(t, j.RejectAgain(t.Context(), "k", rejectionsOf(events[:1], "no")))
	require.Len(t, j.letterIDs(t, LetterFilter{}), kept+2, "nothing was dropped")
	for seq := range uint64(20) {
		require.NoError(t, j.RemoveDeadLetter(t.Context(), seq+1))
	}
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events[kept:kept+10], "no")))
}

// Letters that are removed at once take no other letter along: not another sink's, and
// none of the same sink that was not named.
func TestDeadLettersAreRemovedAtOnce(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	events := relaytest.Events(100)
	var a, b []string
	sequences := map[string][]uint64{}
	for i := range 10 {
		sink := []string{"a", "ab"}[i%2]
		require.NoError(t, j.Reject(t.Context(), sink, rejectionsOf(events[10*i:10*i+10], "no")))
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
		oldest, err := j.areOldest(t.Context(), "a", named)
		require.NoError(t, err)
		assert.Equal(t, whole, oldest)
		require.NoError(t, j.RemoveDeadLetters(t.Context(), "a", named))
		assert.Equal(t, left, j.letterIDs(t, LetterFilter{Sink: "a"}))
		assert.Equal(t, b, j.letterIDs(t, LetterFilter{Sink: "ab"}))
	}
	state(true, sequences["a"][:20], a[20:])
	state(false, sequences["a"][21:40], append([]string{a[20]}, a[40:]...))
	require.NoError(t, j.RemoveDeadLetters(t.Context(), "a", sequences["a"][20:21]))
	state(true, sequences["a"], nil)
	require.NoError(t, j.RemoveDeadLetters(t.Context(), "a", nil))
}

// Letters of earlier versions stand under the sink's name alone, one published by
// itself. They are counted, found and removed as the others are.
func TestDeadLettersOfEarlierVersions(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	events := relaytest.Events(4)
	for i := range events[:2] {
		m := j.letter("k", &relay.Rejection{Event: events[i], Reason: "old", Attempts: 1})
		m.Subject = j.names.deadSubject + ".k"
		_, err := j.conn.JetStream.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	require.NoError(t, j.Reject(t.Context(), "k", rejectionsOf(events[2:3], "new")))
	require.NoError(t, j.Reject(t.Context(), "kk", rejectionsOf(events[3:], "new")))
	assert.Equal(t, ids(events), j.letterIDs(t, LetterFilter{}))
	assert.Equal(t, ids(events[:3]), j.letterIDs(t, LetterFilter{Sink: "k"}))
	assert.Equal(t, ids(events[3:]), j.letterIDs(t, LetterFilter{Sink: "kk"}))
	usage, err := j.LetterUsage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(3), usage["k"].Letters)
	assert.Greater(t, usage["k"].Bytes, 2*usage["kk"].Bytes)
	require.NoError(t, j.RemoveDeadLetter(t.Context(), 1))
	require.NoError(t, j.RemoveDeadLetter(t.Context(), 2))
	assert.Equal(t, ids(events[2:3]), j.letterIDs(t, LetterFilter{Sink: "k"}))
}

// What fails for now is told as such, and nothing is left behind.
func TestBatchErrors(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := j.RejectAgain(ctx, "k", rejectionsOf(relaytest.Events(3), "no"))
	require.ErrorIs(t, err, ErrUnavailable)
	assert.Empty(t, j.letterIDs(t, LetterFilter{}))
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
