package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// stage is a ledger on a store of its own, with a log of events.
type stage struct {
	*journal.Quarantine
	t      testing.TB
	dir    string
	store  *disk.Store
	events store.Log
	reg    *prometheus.Registry
	lost   atomic.Int32 // calls of Lost
}

func open(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir()}
	s.begin()
	t.Cleanup(s.end)
	return s
}

func (s *stage) begin() {
	s.t.Helper()
	var err error
	s.store, err = disk.Open(disk.Config{
		Dir: filepath.Join(s.dir, "store"), Salvage: filepath.Join(s.dir, "salvage"), Writer: "test", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(s.t, err)
	s.events = s.open(journal.EventsLog)
	s.Quarantine, s.reg = s.ledger(true)
	require.NoError(s.t, s.Watch(s.t.Context(), journal.EventsLog, s.events))
}

func (s *stage) open(log string) store.Log {
	s.t.Helper()
	l, err := s.store.Log(s.t.Context(), log, store.Options{})
	require.NoError(s.t, err)
	return l
}

func (s *stage) ledger(fuse bool) (*journal.Quarantine, *prometheus.Registry) {
	s.t.Helper()
	reg := prometheus.NewRegistry()
	l, err := journal.OpenQuarantine(s.t.Context(), s.store, journal.QuarantineOptions{
		Logger: slog.New(slog.DiscardHandler), Registerer: reg, Fuse: fuse, Lost: func() { s.lost.Add(1) },
	})
	require.NoError(s.t, err)
	return l, reg
}

func (s *stage) end() {
	s.t.Helper()
	require.NoError(s.t, s.Close())
	require.NoError(s.t, s.store.Close())
}

func (s *stage) restart() {
	s.t.Helper()
	s.end()
	s.begin()
}

// makeAnotherLog makes the log of events again. It would go on where its end mark, or what the table
// knows, says which one it was.
func (s *stage) makeAnotherLog() {
	s.t.Helper()
	require.NoError(s.t, s.store.Table().PutLazy(s.t.Context(), "log/"+journal.EventsLog, nil, store.If{}))
	s.end()
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, "store", journal.EventsLog)))
	require.NoError(s.t, os.Remove(filepath.Join(s.dir, "store", journal.EventsLog+".end")))
	s.begin()
}

// push appends records of so many numbers, from 1 on.
func (s *stage) push(log store.Log, n int) {
	s.t.Helper()
	for i := range n {
		_, err := log.Append(s.t.Context(), store.Draft{Kind: 1, Data: contentOf(i + 1)})
		require.NoError(s.t, err)
	}
}

func contentOf(n int) []byte { return fmt.Appendf(nil, "<content of record %d>", n) }

// rot flips a bit in a record of a log.
func (s *stage) rot(log string, content []byte) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "store", log, "*"))
	require.NoError(s.t, err)
	for _, file := range files {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		require.NoError(s.t, err)
		data, err := os.ReadFile(file)
		require.NoError(s.t, err)
		if at := bytes.Index(data, content); at >= 0 {
			_, err = f.WriteAt([]byte{data[at] ^ 4}, int64(at))
			require.NoError(s.t, errors.Join(err, f.Close()))
			return
		}
		require.NoError(s.t, f.Close())
	}
	s.t.Fatalf("%q stands nowhere in %s", content, log)
}

// spans are the positions that the quarantine names for a log.
func (s *stage) spans(log string) (named [][2]store.Pos) {
	s.t.Helper()
	all, err := s.All(s.t.Context())
	require.NoError(s.t, err)
	for _, loss := range all {
		if loss.Log == log {
			named = append(named, [2]store.Pos{loss.From, loss.To})
		}
	}
	return named
}

func (s *stage) metric(name string) float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	s.t.Fatalf("there is no metric %s", name)
	return 0
}

func gap(from, to store.Pos) store.Gap { return store.Gap{From: from, To: to, Why: store.Damaged} }

func TestAPositionIsNamedOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(5, 7)))
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(5, 5)))
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(3, 9)))
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, store.Gap{From: 1, To: 2, Why: store.Trimmed}))
	want := [][2]store.Pos{{5, 7}, {3, 4}, {8, 9}}
	assert.Equal(t, want, s.spans(journal.EventsLog))
	assert.EqualValues(t, 3, s.lost.Load())
	assert.InDelta(t, 3, s.metric("auditrelay_journal_quarantined_records_total"), 0)
	assert.InDelta(t, 7, s.metric("auditrelay_journal_lost_records"), 0)

	s.restart()
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(3, 9)))
	require.NoError(t, s.NameRecord(t.Context(), journal.EventsLog, 4, "no", []byte("raw")))
	assert.Equal(t, want, s.spans(journal.EventsLog), "the next start adds nothing")
	assert.EqualValues(t, 3, s.lost.Load())
	assert.InDelta(t, 7, s.metric("auditrelay_journal_lost_records"), 0, "over the journal's life")

	require.NoError(t, s.Watch(t.Context(), "other", s.open("other")))
	require.NoError(t, s.Name(t.Context(), "other", gap(5, 5)))
	assert.Equal(t, [][2]store.Pos{{5, 5}}, s.spans("other"), "positions of another log are others")
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, store.Gap{From: 5, To: 10, Why: store.Rewound}))
	assert.Equal(t, append(want, [2]store.Pos{10, 10}), s.spans(journal.EventsLog), "whatever it was lost by")

	require.ErrorContains(t, s.Name(t.Context(), "nobody's", gap(1, 1)), "not watched")
	require.ErrorContains(t, s.Name(t.Context(), journal.EventsLog, gap(0, 1)), "no gap")
	require.ErrorContains(t, s.Name(t.Context(), journal.EventsLog, gap(2, 1)), "no gap")
}

// Positions mean other records where the log was made again.
func TestANewLogHasPositionsOfItsOwn(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(1, 1)))
	s.makeAnotherLog()
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(1, 1)))
	all, err := s.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.NotEqual(t, all[0].Subject(), all[1].Subject(), "the trail tells them apart")
}

// Several sinks meet the same damage at once, and so do two relays on one cluster.
func TestManyNameTheSamePositions(t *testing.T) {
	t.Parallel()
	s := open(t)
	another, _ := s.ledger(true)
	defer func() { require.NoError(t, another.Close()) }()
	require.NoError(t, another.Watch(t.Context(), journal.EventsLog, s.events))
	var wg sync.WaitGroup
	for i := range 40 {
		l := []*journal.Quarantine{s.Quarantine, another}[i%2]
		wg.Go(func() {
			from := store.Pos(1 + i*7%20)
			assert.NoError(t, l.Name(t.Context(), journal.EventsLog, gap(from, from+5)))
		})
	}
	wg.Wait()
	times := map[store.Pos]int{}
	for _, span := range s.spans(journal.EventsLog) {
		for pos := span[0]; pos <= span[1]; pos++ {
			times[pos]++
		}
	}
	assert.Len(t, times, 25)
	for pos, n := range times {
		assert.Equal(t, 1, n, "names of position %d", pos)
	}
}

func TestAnUndecodableRecordIsKept(t *testing.T) {
	t.Parallel()
	s := open(t)
	raw := []byte("line\nand\x00bytes")
	require.NoError(t, s.NameRecord(t.Context(), journal.EventsLog, 7, "a\nb", raw))
	huge := bytes.Repeat([]byte("x"), s.events.MaxRecord())
	require.NoError(t, s.NameRecord(t.Context(), journal.EventsLog, 8, "huge", huge))
	all, err := s.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, journal.Loss{
		Log: journal.EventsLog, ID: all[0].ID, From: 7, To: 7, Reason: "a\nb", Time: all[0].Time, Bytes: len(raw),
	}, all[0])
	assert.WithinRange(t, all[0].Time, time.Now().Add(-time.Hour), time.Now())
	assert.Less(t, all[1].Bytes, len(huge), "what does not fit is left out")
	assert.Greater(t, all[1].Bytes, len(huge)-1000)
	for item, err := range s.open(journal.QuarantineLog).Read(t.Context(), 1, false) {
		require.NoError(t, err)
		assert.True(t, bytes.HasSuffix(item.Record.Data, raw) || len(item.Record.Data) > 1000)
	}
}

// Rot is found where nobody reads: at the start, and on a relay that runs.
func TestRotIsNamedWhereNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.push(s.events, 20)
		letters := s.open("deadletters")
		s.push(letters, 20)
		s.rot(journal.EventsLog, contentOf(4))
		s.restart()
		require.NoError(t, s.Watch(t.Context(), "deadletters", s.open("deadletters")))
		synctest.Wait()
		assert.Equal(t, [][2]store.Pos{{4, 4}}, s.spans(journal.EventsLog))
		s.rot(journal.EventsLog, contentOf(7))
		s.rot("deadletters", contentOf(20))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, [][2]store.Pos{{4, 4}, {7, 7}}, s.spans(journal.EventsLog))
		assert.Equal(t, [][2]store.Pos{{20, 20}}, s.spans("deadletters"))
		all, err := s.All(t.Context())
		require.NoError(t, err)
		for _, loss := range all {
			assert.FileExists(t, filepath.Join(s.dir, loss.Kept), "the damaged bytes are kept")
		}
	})
}

// Damage of the quarantine itself is named in it, and what it had named is named again.
func TestTheQuarantineIsDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.push(s.events, 20)
		s.rot(journal.EventsLog, contentOf(4))
		s.rot(journal.EventsLog, contentOf(8))
		s.restart()
		synctest.Wait()
		require.Equal(t, [][2]store.Pos{{4, 4}, {8, 8}}, s.spans(journal.EventsLog))
		s.end()
		s.rot(journal.QuarantineLog, []byte(`"from":4`))
		s.begin()
		synctest.Wait()
		assert.Equal(t, [][2]store.Pos{{8, 8}, {4, 4}}, s.spans(journal.EventsLog))
		assert.Equal(t, [][2]store.Pos{{1, 1}}, s.spans(journal.QuarantineLog))
	})
}

func TestTheQuarantineIsToldUntilItIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(7, 8)))
		failures := 3
		var told []store.Pos
		until := func(last store.Pos) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := s.Follow(ctx, func(_ context.Context, loss journal.Loss) error {
				if failures--; failures >= 0 {
					return assert.AnError
				}
				if told = append(told, loss.From); loss.From == last {
					cancel()
				}
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
		}
		until(7)
		require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(9, 9)))
		s.restart()
		var naming sync.WaitGroup
		naming.Go(func() {
			time.Sleep(time.Second)
			assert.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(11, 11)))
		})
		until(11)
		naming.Wait()
		assert.Equal(t, []store.Pos{7, 7, 9, 11}, told, "each is told once at each start")
	})
}

// The fuse holds a sink before much damage, until a person accepts it, over restarts.
func TestSinksWaitBeforeMuchDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.push(s.events, 300)
		require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(10, 12)))
		require.NoError(t, s.HoldBefore(t.Context(), "kafka", gap(10, 12)))
		require.False(t, s.Damage().Held)
		_, err := s.Accept(t.Context())
		require.NoError(t, err, "little damage can be accepted too")
		_, err = s.Accept(t.Context())
		require.ErrorIs(t, err, journal.ErrNoDamage)

		s.push(s.events, 100)
		require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(310, 320)))
		for range 2 {
			assert.Equal(t, journal.Damage{Held: true, Records: 11, Readable: 386, First: 310, Waiting: map[string]string{}}, s.Damage())
			assert.InDelta(t, 1, s.metric("auditrelay_journal_damage_held"), 0)
			require.NoError(t, s.HoldBefore(t.Context(), "kafka", gap(11, 12)), "accepted damage holds nobody")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			require.ErrorIs(t, s.HoldBefore(ctx, "kafka", gap(320, 320)), context.DeadlineExceeded)
			cancel()
			s.restart()
		}
		ended := make(chan error)
		go func() { ended <- s.HoldBefore(t.Context(), "kafka", gap(310, 320)) }()
		synctest.Wait()
		assert.Equal(t, map[string]string{"kafka": "a person to accept the damage at positions 310 to 320"}, s.Damage().Waiting)
		was, err := s.Accept(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 11, was.Records)
		require.NoError(t, <-ended)
		s.restart()
		assert.Equal(t, journal.Damage{Readable: 386, Waiting: map[string]string{}}, s.Damage())
		require.NoError(t, s.HoldBefore(t.Context(), "kafka", gap(310, 320)))
	})
}

// A power cut may tear many records at the end, and nobody has to accept that.
func TestSinksDoNotWaitAfterAPowerCut(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.push(s.events, 300)
	torn := store.Gap{From: 301, To: 400, Why: store.Doubtful}
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, torn))
	for range 2 {
		assert.Zero(t, s.Damage().Records)
		require.NoError(t, s.HoldBefore(t.Context(), "kafka", torn))
		assert.Equal(t, [][2]store.Pos{{301, 400}}, s.spans(journal.EventsLog), "they are named")
		s.restart()
	}
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(1, 11)))
	assert.Equal(t, journal.Damage{Held: true, Records: 11, Readable: 289, First: 1, Waiting: map[string]string{}}, s.Damage())
	require.NoError(t, s.HoldBefore(t.Context(), "kafka", torn))
}

// What a person accepted was the damage of one log, and not of the next one.
func TestAnotherLogIsNotAccepted(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.push(s.events, 300)
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(1, 20)))
	_, err := s.Accept(t.Context())
	require.NoError(t, err)
	s.makeAnotherLog()
	s.push(s.events, 300)
	assert.Zero(t, s.Damage().Records)
	require.NoError(t, s.Name(t.Context(), journal.EventsLog, gap(1, 20)))
	assert.True(t, s.Damage().Held)
}

func TestAnExternalClusterHasNoFuse(t *testing.T) {
	t.Parallel()
	s := open(t)
	l, reg := s.ledger(false)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.Watch(t.Context(), journal.EventsLog, s.events))
	require.NoError(t, l.Name(t.Context(), journal.EventsLog, gap(1, 5000)))
	require.NoError(t, l.HoldBefore(t.Context(), "kafka", gap(1, 5000)))
	assert.Equal(t, journal.Damage{Waiting: map[string]string{}}, l.Damage())
	n, err := testutil.GatherAndCount(reg, "auditrelay_journal_lost_records")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

func TestASinkWaitsAtALaterVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.HoldVersion(ctx, "kafka", 2, errors.New("written by a later version")) }()
		synctest.Wait()
		assert.Equal(t, map[string]string{"kafka": "position 2: written by a later version"}, s.Damage().Waiting)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Empty(t, s.Damage().Waiting)
	})
}
