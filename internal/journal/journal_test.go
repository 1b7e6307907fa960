package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(50)
	events[3].Body = nil
	events[4].Body = []byte{0, 0xff, '\n'}
	events[5].Labels = []relay.Label{{Name: "a", Value: "b"}, {Name: "", Value: "ü"}}
	events[6].Subject = "s"
	j.push(t, events)
	s := j.source(t, "k")
	defer s.Close()
	got := read(t, s, len(events), true)
	require.Len(t, got, len(events))
	for i := range events {
		if len(events[i].Body) == 0 {
			events[i].Body = got[i].Body // nil and empty are one
		}
		assert.Equal(t, events[i], got[i])
	}
}

func TestPositionSurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events := relaytest.Events(30)
	j := open(t, dir, testConfig)
	for i := range 3 {
		j.push(t, events[10*i:10*i+10])
	}
	s := j.source(t, "k")
	first, err := s.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Ack(t.Context(), first.Position))
	n, err := j.delivered(t.Context())
	require.NoError(t, err)
	assert.Equal(t, DeliveredRecord(first.Position), n)
	s.Close()
	j.shut(t)

	j = open(t, dir, testConfig)
	s = j.source(t, "k")
	defer s.Close()
	rest := ids(events)[len(first.Events):]
	if len(rest) > 0 {
		assert.Equal(t, rest, ids(read(t, s, len(rest), true)))
	}
	other := j.source(t, "other")
	defer other.Close()
	assert.Equal(t, ids(events), ids(read(t, other, 30, true)), "a new sink starts at the beginning")
}

// After a restart of the reader, unacknowledged records come again at once, in order,
// before anything new.
func TestUnacknowledgedComesAgainFirst(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(100)
	for i := range 100 {
		j.push(t, events[i:i+1])
	}
	s := j.source(t, "k")
	require.NotEmpty(t, read(t, s, 60, false))
	s.Close()
	s = j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events), ids(read(t, s, 100, true)))
}

func TestConcurrentAppendsShareCommits(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	const pushers, pushes = 64, 20
	events := relaytest.Events(pushers * pushes)
	var wg sync.WaitGroup
	for p := range pushers {
		wg.Go(func() {
			for i := range pushes {
				at := p*pushes + i
				assert.NoError(t, j.Append(t.Context(), batchOf(events[at:at+1])))
			}
		})
	}
	wg.Wait()
	s := j.source(t, "k")
	defer s.Close()
	assert.ElementsMatch(t, ids(events), ids(read(t, s, len(events), true)))
	commits := testutil.ToFloat64(j.metrics.commits)
	assert.Less(t, commits, float64(pushers*pushes)/4, "appends were committed one by one")
}

func TestALargePushIsCutAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(6000, relaytest.BodyBytes(1000)) // 6 MB
	j.push(t, events)
	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events), ids(read(t, s, len(events), true)))
	assert.Greater(t, testutil.ToFloat64(j.metrics.commits), 4.0)
}

// Sources share decoded records, so a merge of records must not write into those of another
// source.
func TestSourcesShareDecodedRecords(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(400)
	var reading sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		s := j.source(t, name)
		defer s.Close()
		reading.Go(func() { assert.Equal(t, ids(events), ids(read(t, s, len(events), true)), name) })
	}
	for i := 0; i < len(events); i += 2 {
		j.push(t, events[i:i+2])
	}
	reading.Wait()
}

func TestLargeEvents(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	large := relaytest.Events(3, relaytest.BodyBytes(7<<20)) // as config allows of line_bytes
	_, _ = rand.NewChaCha8([32]byte{}).Read(large[1].Body)   // that does not compress
	j.push(t, large)
	s := j.source(t, "k")
	defer s.Close()
	got := read(t, s, 3, true)
	for i := range large {
		require.True(t, bytes.Equal(large[i].Body, got[i].Body), "event %d", i)
	}
	require.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.BodyBytes(17<<20)))), record.ErrTooLarge)
}

func TestABudgetThatIsSpentRefusesAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 1 << 20
	j := open(t, t.TempDir(), cfg)
	random := rand.NewChaCha8([32]byte{1})
	var kept []string
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		e := relaytest.Events(1, relaytest.From(i))
		e[0].Body = make([]byte, 20_000) // random bytes do not compress
		_, _ = random.Read(e[0].Body)
		if err = j.Append(t.Context(), batchOf(e)); err == nil {
			kept = append(kept, e[0].ID)
		}
	}
	require.ErrorIs(t, err, ErrFull)
	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, kept, ids(read(t, s, len(kept), true)))
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(1<<20), u.MaxBytes)
	assert.Greater(t, u.Bytes, int64(900_000))
}

func TestTrimLetsGoOnlyWhatAllHaveAndIsOld(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 4 << 20 // segments of 128 KiB, and one record of noise in each
	j := open(t, t.TempDir(), cfg)
	next, begun := noise(1, "s", 100_000), time.Now()
	for range 20 {
		require.NoError(t, j.Append(t.Context(), next()))
	}
	fast, slow, last := j.source(t, "fast"), j.source(t, "slow"), j.source(t, "very-fast")
	defer fast.Close()
	defer slow.Close()
	defer last.Close()
	later := time.Now().Add(time.Hour)
	read(t, fast, 20, true)
	read(t, last, 20, true)
	trimmed := func(before time.Time) (total uint64) {
		n, err := j.Trim(t.Context(), before)
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, trimmed(later), "slow has acknowledged nothing")
	read(t, slow, 20, true)
	assert.Zero(t, trimmed(begun), "younger than the window")
	middle, err := recordFrom(t.Context(), j.events, 8, 9)
	require.NoError(t, err)
	assert.Equal(t, uint64(7), trimmed(middle.Time))
	assert.Equal(t, uint64(12), trimmed(later), "the store keeps its newest segment")
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, u.Records)
	assert.EqualValues(t, 19, j.Trimmed())
}

func TestACorruptRecordIsSetAsideAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(2)
	j.push(t, events[:1])
	rec := record.Append(nil, batchOf(events).Bytes(), 2)
	rec[len(rec)/2] ^= 1
	j.publish(t, rec)
	j.push(t, events[1:])
	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events), ids(read(t, s, 2, true)))
	named, err := j.names.All(t.Context())
	require.NoError(t, err)
	require.Len(t, named, 1)
	assert.Equal(t, []store.Pos{2, 2}, []store.Pos{named[0].From, named[0].To})
	assert.Contains(t, named[0].Reason, "checksum")
	assert.Equal(t, len(rec), named[0].Bytes)
	assert.Equal(t, 1.0, j.metric(t, "auditrelay_journal_quarantined_records_total"))
}

func TestAppendAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	j.shut(t)
	require.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1))), ErrClosed)
}

var _ relay.Source = (*Source)(nil)

// hung is a log whose disk does not answer until back is closed.
type hung struct {
	store.Log
	back chan struct{}
}

func (h hung) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	select {
	case <-h.back:
		return h.Log.Append(ctx, drafts...)
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	}
}

func (h hung) Room(ctx context.Context, need int64) error {
	select {
	case <-h.back:
		return h.Log.(room).Room(ctx, need)
	default:
		return errors.New("the disk has not finished an earlier write")
	}
}

// While a sync does not end, a push is refused after a stated time, and readiness says so until
// the disk answers again, however long ago the last push was.
func TestAPushIsRefusedWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	log := hung{j.events, make(chan struct{})}
	j.events, j.commits.patience = log, 10*time.Millisecond
	var pushes sync.WaitGroup
	for i := range 8 {
		pushes.Go(func() {
			err := j.Append(context.Background(), batchOf(relaytest.Events(1, relaytest.From(i))))
			assert.ErrorIs(t, err, ErrUnavailable)
		})
	}
	pushes.Wait()
	last := *j.refused.Load()
	last.at = last.at.Add(-time.Hour)
	j.refused.Store(&last)
	require.ErrorContains(t, j.Refusing(t.Context()), "has not finished an earlier write")
	close(log.back)
	require.NoError(t, j.Refusing(t.Context()))
	j.commits.patience = commitTimeout
	j.push(t, relaytest.Events(1))
}

// counted counts what is read of a log.
type counted struct {
	store.Log
	items int
}

func (c *counted) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		for item, err := range c.Log.Read(ctx, from, follow) {
			if c.items++; !yield(item, err) {
				return
			}
		}
	}
}

// After a long gap at the end of a long log, a start does not read all of the log to count its events.
func TestTheNewestRecordBeforeALongGapIsFoundSoon(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	for _, length := range []store.Pos{1, 600} {
		for i := range 150 {
			j.push(t, relaytest.Events(2, relaytest.From(i)))
		}
		state, err := j.state(t.Context())
		require.NoError(t, err)
		end := state.End
		require.NoError(t, j.events.(store.Taker).Pass(t.Context(), store.Gap{From: end + 1, To: end + length, Why: store.Damaged}))
		state, err = j.state(t.Context())
		require.NoError(t, err)
		log := &counted{Log: j.events}
		newest, err := (&Journal{events: log}).newestMark(t.Context(), &state)
		require.NoError(t, err)
		assert.Equal(t, end+length, newest.pos)
		want, err := recordFrom(t.Context(), j.events, end, end+1)
		require.NoError(t, err)
		assert.Equal(t, markOf(want).events, newest.events)
		assert.Less(t, log.items, 60)
	}
}
