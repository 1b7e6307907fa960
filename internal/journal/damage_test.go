package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/blockfile"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// wreck is a data directory whose journal was closed, to be damaged.
type wreck struct {
	*store
	dir   string
	cfg   config.Journal
	acked uint64              // what sink k has acknowledged
	holds map[uint64][]string // the ids of each position's events
}

// newWreck makes a journal of n records with some kilobytes each, four to
// a block; sink k has acknowledged the first acked of them.
func newWreck(t *testing.T, n int, acked uint64) *wreck {
	t.Helper()
	cfg := testConfig
	small := cfg
	small.MaxBytes = 100_000 // for which the server makes blocks of 32 KB, and keeps to that when it is raised
	w := &wreck{dir: t.TempDir(), cfg: cfg, holds: map[uint64][]string{}}
	j := open(t, w.dir, small)
	j.Close()
	large, err := Open(t.Context(), j.conn, cfg, Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	j.Journal = large
	random := rand.NewChaCha8([32]byte{7})
	for i := range n {
		events := relaytest.Events(3, relaytest.From(3*i))
		for k := range events {
			events[k].Body = make([]byte, 3000)
			_, _ = random.Read(events[k].Body) // does not compress
		}
		j.push(t, events)
		w.holds[uint64(i+1)] = ids(events)
	}
	s, err := j.Source(t.Context(), "k", Limit{Events: 3, Bytes: 1})
	require.NoError(t, err)
	for p := uint64(0); p < acked; {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Ack(t.Context(), b.Position))
		p = uint64(b.Position)
	}
	require.Eventually(t, func() bool {
		at, err := j.delivered(t.Context())
		return err == nil && at >= acked
	}, 10*time.Second, time.Millisecond)
	s.Close()
	j.shut(t)
	w.acked = acked
	w.store = &store{dataDir: w.dir, names: namesFor(cfg.StreamPrefix), marks: &marks{dir: filepath.Join(w.dir, "marks")}}
	return w
}

func (w *wreck) blocks(t *testing.T) []string {
	t.Helper()
	paths, err := blockfile.List(w.streamDir(w.names.events))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "the server keeps its files elsewhere")
	return paths
}

// flip changes a bit of a file.
func flip(t *testing.T, path string, at int, bit uint) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[at] ^= 1 << bit
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func (w *wreck) dropIndex(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(w.streamDir(w.names.events), "msgs", "index.db")))
}

// account opens the journal again and reads all of it for a new sink: each
// position is delivered or stands in the quarantine, and a push afterwards
// arrives at the old sink and the new one. It returns the positions that were lost.
func (w *wreck) account(t *testing.T) []uint64 {
	t.Helper()
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	j.push(t, late)
	all := readUntil(t, j, "fresh", "late")
	quarantine, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, q := range quarantine {
		for p := q.From; p <= q.To; p++ {
			assert.False(t, named[p] && q.Stream == w.names.events, "position %d is named twice", p)
			named[p] = true
		}
	}
	var lost []uint64
	for _, p := range slices.Sorted(maps.Keys(w.holds)) {
		for _, id := range w.holds[p] {
			if all[id] == 0 {
				assert.True(t, named[p], "position %d is neither delivered nor named", p)
				lost = append(lost, p)
				break
			}
			assert.False(t, named[p], "position %d is delivered and named", p)
		}
	}
	assert.Len(t, named, len(lost), "%v are named, %v are lost", named, lost)
	assert.InDelta(t, float64(len(lost)), testutil.ToFloat64(j.metrics.lost), 0)
	old := readUntil(t, j, "k", "late")
	for p, ids := range w.holds {
		if p > w.acked && !named[p] {
			assert.NotZero(t, old[ids[0]], "position %d never comes to the sink that was not done with it", p)
		}
	}
	w.acked = uint64(len(w.holds)) // and more
	return lost
}

func readUntil(t *testing.T, j *opened, sink, id string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := j.source(t, sink)
	defer s.Close()
	got := map[string]int{}
	for got[id] == 0 {
		b, err := s.Next(ctx)
		require.NoError(t, err, "sink %s after %d events", sink, len(got))
		for i := range b.Events {
			got[b.Events[i].ID]++
		}
		require.NoError(t, s.Ack(ctx, b.Position))
	}
	return got
}

// Each damage is done to a journal that was closed cleanly and to one whose
// index is gone, as after a crash, when the server reads the blocks again.
func TestDamageIsNamedAndTheRestIsDelivered(t *testing.T) {
	t.Parallel()
	damages := map[string]func(t *testing.T, w *wreck, rng *rand.Rand) (worst int){
		"one bit": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path, at := w.anywhere(t, rng)
			flip(t, path, at, rng.UintN(8))
			return 1
		},
		"bits": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			for range 5 {
				path, at := w.anywhere(t, rng)
				flip(t, path, at, rng.UintN(8))
			}
			return 5
		},
		"a page of zeros": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path, at := w.anywhere(t, rng)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			clear(data[at:min(len(data), at+4096)])
			require.NoError(t, os.WriteFile(path, data, 0o600))
			return 3
		},
		"torn end": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			paths := w.blocks(t)
			info, err := os.Stat(paths[len(paths)-1])
			require.NoError(t, err)
			n := rng.Int64N(min(info.Size(), 40_000)) + 1
			require.NoError(t, os.Truncate(paths[len(paths)-1], info.Size()-n))
			return 6
		},
		"a block is gone": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			paths := w.blocks(t)
			require.NoError(t, os.Remove(paths[rng.IntN(len(paths))]))
			return 4
		},
		"a position": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(w.streamDir(w.names.events), "obs", consumerPrefix+"k", "o.dat")
			flip(t, path, rng.IntN(9), rng.UintN(8))
			return 0
		},
		"a description": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(w.streamDir(w.names.events), "meta.inf")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
		"a consumer's description": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(w.streamDir(w.names.events), "obs", consumerPrefix+"k", "meta.inf")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
		"a mark": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			names := []string{markAcknowledged, consumerPrefix + "k"}
			flip(t, filepath.Join(w.dir, "marks", names[rng.IntN(len(names))]), rng.IntN(16), rng.UintN(8))
			return 0
		},
		"the index": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(w.streamDir(w.names.events), "msgs", "index.db")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
	}
	for name, damage := range damages {
		for seed := range uint64(5) {
			for _, crashed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/seed %d/crashed %t", name, seed, crashed), func(t *testing.T) {
					t.Parallel()
					w := newWreck(t, 60, 40)
					worst := damage(t, w, rand.New(rand.NewPCG(seed, 1)))
					if crashed {
						w.dropIndex(t)
					}
					before := snapshot(t, w.dir)
					found := w.verify(t)
					assert.Equal(t, before, snapshot(t, w.dir), "verify changes files")
					lost := w.account(t)
					t.Logf("lost positions: %v", lost)
					for _, p := range lost {
						assert.True(t, slices.ContainsFunc(found.Problems, func(f Problem) bool { return f.From <= p && p <= f.To }), "verify does not name position %d: %v", p, found.Problems)
					}
					if len(lost) > 0 {
						assert.Positive(t, found.Open())
					}
					assert.LessOrEqual(t, len(lost), worst, "more is lost than was damaged")
					assert.Equal(t, lost, w.again(t), "the second start finds the same")
					settled := w.verify(t)
					assert.Zero(t, settled.Open(), "%v", settled.Problems)
				})
			}
		}
	}
}

// snapshot is each file's content.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	}))
	return files
}

func (w *wreck) anywhere(t *testing.T, rng *rand.Rand) (string, int) {
	t.Helper()
	paths := w.blocks(t)
	path := paths[rng.IntN(len(paths))]
	info, err := os.Stat(path)
	require.NoError(t, err)
	return path, rng.IntN(int(info.Size()))
}

// again accounts once more, with a sink that has not read yet.
func (w *wreck) again(t *testing.T) []uint64 {
	t.Helper()
	j := open(t, w.dir, w.cfg)
	require.NoError(t, j.stream.DeleteConsumer(t.Context(), consumerPrefix+"fresh"))
	require.NoError(t, j.conn.marks.forget(consumerPrefix+"fresh"))
	j.shut(t)
	return w.account(t)
}

// The server keeps no checksum of a position: damage looks like another one.
func TestAPositionThatRunsAheadIsSetBack(t *testing.T) {
	t.Parallel()
	for _, ahead := range []uint64{45, 60, 1 << 40} {
		w := newWreck(t, 60, 40)
		path := filepath.Join(w.streamDir(w.names.events), "obs", consumerPrefix+"k", "o.dat")
		data := []byte{22, 2}
		for _, n := range []uint64{40, ahead, 40, ahead, 0, 0} {
			data = binary.AppendUvarint(data, n)
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
		problems := w.verify(t).Problems
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0].What, "has acknowledged 40 only")
		assert.Empty(t, w.account(t))
	}
}

func (w *wreck) verify(t *testing.T) *Verification {
	t.Helper()
	o, err := OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.NoError(t, err)
	v, err := o.Verify(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, o.Close())
	return v
}

// Positions that were given out and are gone are never given out again: a sink
// that has acknowledged them would never get what then stands there.
func TestATornEndDoesNotReusePositions(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	w.dropIndex(t)
	paths := w.blocks(t)
	info, err := os.Stat(paths[len(paths)-1])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(paths[len(paths)-1], info.Size()-25_000))
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	j.push(t, late)
	state, err := j.stream.Info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(31), state.State.LastSeq)
	readUntil(t, j, "k", "late")
}

// A server that loses the end of its stream while it runs gives positions out
// again. Nothing is acknowledged at such a position.
func TestAPositionThatIsGivenOutTwiceIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	failed := make(chan error, 2)
	j.commits.failed = func(err error) { failed <- err }
	for i := range 3 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	require.NoError(t, j.conn.JetStream.DeleteStream(t.Context(), j.names.events))
	require.NoError(t, j.makeStreams(t.Context()))
	for i := range 3 {
		err := j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(10+i))))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "position 1 again")
	}
	require.ErrorContains(t, <-failed, "position 1 again")
	j.shut(t)
	j = open(t, dir, testConfig)
	defer j.shut(t)
	j.push(t, relaytest.Events(1, relaytest.From(20)))
	u, err := j.stream.Info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(4), u.State.LastSeq)
}

func TestPositionsMayBeAnsweredOutOfOrder(t *testing.T) {
	t.Parallel()
	var g given
	for _, seq := range []uint64{100, 102, 101, 104, 103} {
		assert.True(t, g.take(seq), "%d", seq)
	}
	for _, seq := range []uint64{104, 101, 90, 1} {
		assert.False(t, g.take(seq), "%d", seq)
	}
	assert.True(t, g.take(105))
}

// The whole newest block is gone, and nothing is appended that would show it.
func TestALostEndIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	paths := w.blocks(t)
	require.NoError(t, os.Truncate(paths[len(paths)-1], 0))
	w.dropIndex(t)
	j := open(t, w.dir, w.cfg)
	q, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, uint64(30), q[0].To)
	j.shut(t)
	assert.Zero(t, w.verify(t).Open())
}

// Damage that arises under a running server stops neither the reader nor what
// comes behind it.
func TestDamageWhileRunningIsSteppedOver(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 60, 10)
	path := w.blocks(t)[8]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	frame := b.Frames(0)[1]
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	flip(t, path, frame.Offset+frame.Size/2, 3) // the server has not read it yet
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	j.push(t, late)
	got := readUntil(t, j, "k", "late")
	assert.Equal(t, (60-10-1)*3+1, len(got))
	q, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, frame.Seq, q[0].From)
	assert.Equal(t, frame.Seq, q[0].To)
	readUntil(t, j, "fresh", "late")
	q, err = j.Quarantine(t.Context())
	require.NoError(t, err)
	assert.Len(t, q, 1, "named once, not once a sink")
}

func TestTheQuarantineIsToldUntilItIsHeard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	defer j.shut(t)
	for _, from := range []uint64{7, 9, 7} {
		q := Quarantined{Stream: j.names.events, From: from, To: from + 1, Reason: "a\nb"}
		require.NoError(t, j.setAside(t.Context(), q, []byte("raw")))
	}
	var told []uint64
	failures := 1
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := j.FollowQuarantine(ctx, func(_ context.Context, q Quarantined) error {
		if failures--; failures >= 0 {
			return assert.AnError
		}
		assert.Equal(t, Quarantined{Stream: j.names.events, From: q.From, To: q.From + 1, Reason: "a b", Time: q.Time, Bytes: 3}, q)
		if told = append(told, q.From); len(told) == 2 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []uint64{7, 9}, told)
	assert.InDelta(t, 2, testutil.ToFloat64(j.metrics.quarantined), 0)
}

// A sound journal is read as it is, and nothing is mended or named, whatever
// was trimmed.
func TestASoundJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, crashed := range []bool{false, true} {
		for _, trimTo := range []uint64{0, 20, 40} {
			w := newWreck(t, 40, 40)
			j := open(t, w.dir, w.cfg)
			if trimTo > 0 {
				require.NoError(t, j.stream.Purge(t.Context(), jetstream.WithPurgeSequence(trimTo+1)))
			}
			late := relaytest.Events(1)
			late[0].ID = "late"
			j.push(t, late)
			readUntil(t, j, "new", "late") // begins behind what was trimmed
			j.shut(t)
			if crashed {
				w.dropIndex(t)
			}
			var log bytes.Buffer
			conn, err := Connect(t.Context(), w.dir, w.cfg, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
			require.NoError(t, err)
			assert.Empty(t, conn.Mended)
			again, err := Open(t.Context(), conn, w.cfg, Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			require.NoError(t, err)
			q, err := again.Quarantine(t.Context())
			require.NoError(t, err)
			assert.Empty(t, q)
			again.Close()
			require.NoError(t, conn.Close())
			assert.NotContains(t, log.String(), "level=ERROR")
		}
	}
}

// What repair takes out is kept, and what the relay's own checksum refuses is
// exported.
func TestRepairKeepsWhatItTakesOut(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	j := open(t, w.dir, w.cfg)
	rec := appendRecord(nil, batchOf(relaytest.Events(2)).buf, 2)
	rec[len(rec)/2] ^= 1
	_, err := j.conn.JetStream.Publish(t.Context(), j.names.eventsSubject, rec)
	require.NoError(t, err)
	j.shut(t)
	path := w.blocks(t)[3]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	frame := b.Frames(0)[1]
	flip(t, path, frame.Offset+frame.Size/2, 3)
	damaged, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, 2, w.verify(t).Open())

	_, err = Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	again, err := Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.Empty(t, again.Mended)
	assert.Empty(t, again.SetAside)
	assert.Equal(t, []string{"k"}, again.Positions)
	kept, err := filepath.Glob(filepath.Join(w.dir, SalvageDir, "*"))
	require.NoError(t, err)
	require.Len(t, kept, 2)
	raw, err := os.ReadFile(kept[0])
	require.NoError(t, err)
	assert.Equal(t, damaged[frame.Offset:frame.Offset+frame.Size], raw)
	raw, err = os.ReadFile(kept[1])
	require.NoError(t, err)
	assert.Equal(t, rec, raw)
	v := w.verify(t)
	assert.Zero(t, v.Open(), "%v", v.Problems)
	assert.Len(t, v.Problems, 3)
}

// The relay dies after the files were mended and before anything was told of it.
func TestWhatWasMendedIsToldAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	path := w.blocks(t)[2]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	frame := b.Frames(0)[1]
	flip(t, path, frame.Offset+frame.Size/2, 3)
	conn, err := Connect(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, conn.Mended, 1)
	require.NoError(t, conn.Close())
	assert.Equal(t, []uint64{frame.Seq}, w.account(t))
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	q, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, conn.Mended[0].Kept, q[0].Kept)
	assert.Equal(t, frame.Size, q[0].Bytes, "the quarantine holds the bytes, too")
}

func TestInspectShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	o, err := OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.NoError(t, err)
	_, err = OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.ErrorContains(t, err, "stop it first")
	in, err := o.Inspect(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, o.Close())
	events := in.Streams[0]
	assert.Equal(t, []uint64{30, 90, 1, 30}, []uint64{events.Records, events.Events, events.First, events.Last})
	assert.Equal(t, []PositionSummary{{Sink: "k", Position: 10, LagRecords: 20, LagEvents: 60}}, in.Sinks)
	_, err = OpenOffline(t.TempDir(), "X")
	require.ErrorContains(t, err, "holds no journal")
}
