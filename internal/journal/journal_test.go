package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}

// opened is a journal on an embedded server.
type opened struct {
	*Journal
	conn *Conn
}

func open(t *testing.T, dir string, cfg config.Journal) *opened {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := Connect(t.Context(), dir, cfg, log)
	require.NoError(t, err)
	j, err := Open(t.Context(), conn, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	return &opened{j, conn}
}

func (o *opened) shut(t *testing.T) {
	t.Helper()
	o.Close()
	require.NoError(t, o.conn.Close())
}

func (o *opened) push(t *testing.T, events []relay.Event) {
	t.Helper()
	require.NoError(t, o.Append(t.Context(), batchOf(events)))
}

func batchOf(events []relay.Event) *Batch {
	var b Batch
	for i := range events {
		b.AddEvent(&events[i])
	}
	return &b
}

func (o *opened) source(t *testing.T, name string) *Source {
	t.Helper()
	s, err := o.Source(t.Context(), name, Limit{Events: 1000, Bytes: 1 << 20})
	require.NoError(t, err)
	return s
}

// read takes n events from s, and acknowledges them where ack is set.
func read(t *testing.T, s *Source, n int, ack bool) []relay.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []relay.Event
	for len(got) < n {
		b, err := s.Next(ctx)
		require.NoError(t, err, "after %d of %d events", len(got), n)
		got = append(got, b.Events...)
		if ack {
			require.NoError(t, s.Ack(ctx, b.Position))
		}
	}
	return got
}

func ids(events []relay.Event) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
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
	// The acknowledgement is on its way: wait until the server has it.
	require.Eventually(t, func() bool {
		n, err := j.delivered(t.Context())
		return err == nil && n == uint64(first.Position)
	}, 5*time.Second, time.Millisecond)
	s.Close()
	j.shut(t)

	j = open(t, dir, testConfig)
	defer j.shut(t)
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

// What was read and not acknowledged comes again at once after a restart of
// the reader, in order, before anything new.
func TestUnacknowledgedComesAgainFirst(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
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
	defer j.shut(t)
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
	defer j.shut(t)
	events := relaytest.Events(6000, relaytest.BodyBytes(1000)) // 6 MB
	j.push(t, events)
	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events), ids(read(t, s, len(events), true)))
	assert.Greater(t, testutil.ToFloat64(j.metrics.commits), 4.0)
}

// Sources share what they decode; one that merges records must not write into
// what another reads.
func TestSourcesShareDecodedRecords(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
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

func TestDecodedCacheIsBoundedAndDecodesOnce(t *testing.T) {
	t.Parallel()
	c := newDecodedCache()
	rec := appendRecord(nil, batchOf(relaytest.Events(3)).buf, 3)
	first, err := c.decode(1, rec)
	require.NoError(t, err)
	again, err := c.decode(1, rec)
	require.NoError(t, err)
	assert.Same(t, &first[0], &again[0])
	other, err := c.decode(1, appendRecord(nil, batchOf(relaytest.Events(1, relaytest.From(9))).buf, 1))
	require.NoError(t, err)
	assert.Len(t, other, 1, "the number was given to another record")
	for seq := range uint64(10 * decodedRecords) {
		_, _ = c.decode(seq, rec)
	}
	assert.Len(t, c.records, decodedRecords)
	assert.Len(t, c.order, decodedRecords)
	again, err = c.decode(1, rec)
	require.NoError(t, err)
	assert.NotSame(t, &first[0], &again[0], "it was let go, and is decoded again")
}

func TestLargeEvents(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	large := relaytest.Events(3, relaytest.BodyBytes(7<<20)) // as config allows of line_bytes
	_, _ = rand.NewChaCha8([32]byte{}).Read(large[1].Body)   // that does not compress
	j.push(t, large)
	s := j.source(t, "k")
	defer s.Close()
	got := read(t, s, 3, true)
	for i := range large {
		require.True(t, bytes.Equal(large[i].Body, got[i].Body), "event %d", i)
	}
	require.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.BodyBytes(9<<20)))), ErrTooLarge)
}

func TestABudgetThatIsSpentRefusesAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 1 << 20
	j := open(t, t.TempDir(), cfg)
	defer j.shut(t)
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
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	for i := range 20 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
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
	require.Eventually(t, func() bool { n, err := j.delivered(t.Context()); return err == nil && n == 20 }, 5*time.Second, time.Millisecond)
	assert.Zero(t, trimmed(time.Now().Add(-time.Minute)), "younger than the window")
	middle, err := j.stream.GetMsg(t.Context(), 8)
	require.NoError(t, err)
	assert.Equal(t, uint64(7), trimmed(middle.Time))
	assert.Equal(t, uint64(13), trimmed(later))
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.Zero(t, u.Records)
}

func TestACorruptRecordIsSetAsideAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	events := relaytest.Events(2)
	j.push(t, events[:1])
	rec := appendRecord(nil, batchOf(events).buf, 2)
	rec[len(rec)/2] ^= 1
	_, err := j.conn.JetStream.Publish(t.Context(), j.names.eventsSubject, rec)
	require.NoError(t, err)
	j.push(t, events[1:])
	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events), ids(read(t, s, 2, true)))
	q, err := j.conn.JetStream.Stream(t.Context(), j.names.quarantine)
	require.NoError(t, err)
	msg, err := q.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, rec, msg.Data)
	assert.Equal(t, "2", msg.Header.Get("Auditrelay-Position"))
	assert.Contains(t, msg.Header.Get("Auditrelay-Reason"), "checksum")
	assert.Equal(t, 1.0, testutil.ToFloat64(j.metrics.quarantined))
}

func TestDeadLettersAreKeptByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	events := relaytest.Events(2)
	require.NoError(t, j.Reject(t.Context(), "kafka", []relay.Rejection{
		{Event: events[0], Reason: "too\nlarge", Attempts: 3}, {Event: events[1], Reason: "x", Attempts: 1},
	}))
	j.shut(t)
	j = open(t, dir, testConfig)
	defer j.shut(t)
	var got []DeadLetter
	require.NoError(t, j.DeadLetters(t.Context(), func(d DeadLetter) bool { got = append(got, d); return true }))
	require.Len(t, got, 2)
	assert.Equal(t, "kafka", got[0].Sink)
	assert.Equal(t, "too large", got[0].Reason)
	assert.Equal(t, 3, got[0].Attempts)
	assert.WithinDuration(t, time.Now(), got[0].Time, time.Minute)
	assert.Equal(t, events[0], got[0].Event)
	assert.Equal(t, events[1], got[1].Event)
}

func TestOneProcessOwnsADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	_, err := Connect(t.Context(), dir, testConfig, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "another process")
	j.shut(t)
	j = open(t, dir, testConfig)
	j.shut(t)
}

func TestAppendAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	j.shut(t)
	require.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1))), ErrClosed)
}

// A second reader of the same position takes records away from the first. The
// first notices the gap, and reads again rather than acknowledge over it.
func TestAGapInTheDeliveriesIsReadAgain(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	s := j.source(t, "k")
	defer s.Close()
	// Stand in for the second reader: the server hands records to both in turn.
	consumer, err := j.stream.Consumer(t.Context(), consumerPrefix+"k")
	require.NoError(t, err)
	thief, err := consumer.Messages(jetstream.PullMaxMessages(1))
	require.NoError(t, err)
	stolen := make(chan int)
	go func() {
		n := 0
		for {
			if _, err := thief.Next(); err != nil {
				stolen <- n
				return
			}
			n++
		}
	}()
	want := map[string]bool{}
	for i := range 40 {
		e := relaytest.Events(1, relaytest.From(i))
		want[e[0].ID] = true
		j.push(t, e)
	}
	thief.Stop()
	require.Positive(t, <-stolen, "the second reader got nothing: the test tests nothing")
	// The second reader's last request still stands with the server and may take
	// more; nothing further is pushed that would show the gap.
	got := map[string]bool{}
	for len(got) < 40 {
		for _, e := range read(t, s, 1, true) {
			got[e.ID] = true
		}
	}
	assert.Equal(t, want, got)
}

func FuzzDecodeRecord(f *testing.F) {
	events := relaytest.Events(3)
	rec := appendRecord(nil, batchOf(events).buf, 3)
	f.Add(rec)
	f.Add(rec[:10])
	f.Add([]byte(recordMagic))
	f.Fuzz(func(t *testing.T, rec []byte) {
		for _, sealed := range [][]byte{rec, reseal(rec)} { // past the checksum, too
			dst := make([]relay.Event, 1, 8)
			got, err := decodeRecord(dst, sealed)
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				require.Len(t, got, 1)
			}
		}
	})
}

func reseal(rec []byte) []byte {
	if len(rec) < recordHeader {
		return rec
	}
	out := append([]byte(nil), rec...)
	binary.LittleEndian.PutUint64(out[16:], recordSum(out))
	return out
}

func TestEveryDamageOfARecordIsFound(t *testing.T) {
	t.Parallel()
	rec := appendRecord(nil, batchOf(relaytest.Events(3)).buf, 3)
	_, err := decodeRecord(nil, rec)
	require.NoError(t, err)
	for i := range rec {
		damaged := append([]byte(nil), rec...)
		damaged[i] ^= 0x10
		_, err := decodeRecord(nil, damaged)
		require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
		_, err = decodeRecord(nil, rec[:i])
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", i)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = appendRecord(dst[:0], batch.buf, batch.events)
	}
	b.ReportMetric(float64(len(dst))/1000, "bytes/event")
}

func BenchmarkDecodeRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	rec := appendRecord(nil, batch.buf, batch.events)
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeRecord(nil, rec); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend pushes 100 events at a time from several goroutines.
func BenchmarkAppend(b *testing.B) {
	for _, pushers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("pushers=%d", pushers), func(b *testing.B) {
			log := slog.New(slog.DiscardHandler)
			cfg := testConfig
			cfg.MaxBytes = 64 << 30
			conn, err := Connect(b.Context(), b.TempDir(), cfg, log)
			require.NoError(b, err)
			j, err := Open(b.Context(), conn, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry()})
			require.NoError(b, err)
			b.SetParallelism(pushers)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				batch := batchOf(relaytest.Events(100))
				for pb.Next() {
					if err := j.Append(b.Context(), batch); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(testutil.ToFloat64(j.metrics.commits)/float64(b.N), "commits/push")
			j.Close()
			_ = conn.Close()
		})
	}
}

var (
	_ relay.Source      = (*Source)(nil)
	_ relay.DeadLetters = (*Journal)(nil)
)
