package journal

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// wreck is a data directory whose journal was closed, to be damaged.
type wreck struct {
	dir   string
	names names
	marks *datadir.Watermarks
	cfg   config.Journal
	acked uint64              // acknowledged by sink k
	holds map[uint64][]string // the ids of each position's events
}

// newWreck makes a journal of n records with some kilobytes each, four to
// a block; sink k has acknowledged the first acked of them.
func newWreck(t *testing.T, n int, acked uint64) *wreck {
	t.Helper()
	cfg := testConfig
	small := cfg
	small.MaxBytes = 100_000 // for blocks of 32 KB, whose size the server keeps when it is raised
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
	s, err := j.Source(t.Context(), "k", relay.BatchLimit{Events: 3, Bytes: 1})
	require.NoError(t, err)
	for p := uint64(0); p < acked; {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Ack(t.Context(), b.Position))
		p = uint64(b.Position)
	}
	waiting.Until(t, func() bool {
		at, err := j.delivered(t.Context())
		return err == nil && at >= acked
	})
	s.Close()
	j.shut(t)
	w.acked = acked
	w.names, w.marks = namesFor(cfg.StreamPrefix), datadir.ReadWatermarks(w.dir)
	return w
}

// copied gives a copy: many tests damage the same journal, and one makes it.
func (w *wreck) copied(t *testing.T) *wreck {
	t.Helper()
	c := *w
	c.dir = t.TempDir()
	require.NoError(t, os.CopyFS(c.dir, os.DirFS(w.dir)))
	c.marks = datadir.ReadWatermarks(c.dir)
	return &c
}

func (w *wreck) blocks(t *testing.T) []string {
	t.Helper()
	paths, err := blockfile.List(datadir.StreamDir(w.dir, w.names.events))
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
	require.NoError(t, os.RemoveAll(filepath.Join(datadir.StreamDir(w.dir, w.names.events), "msgs", "index.db")))
}

// account opens the journal again and reads all of it for a new sink: each position is
// delivered or stands in the quarantine, and a push afterwards arrives at the old sink and
// the new one. It returns the lost positions.
func (w *wreck) account(t *testing.T, fresh string) []uint64 {
	t.Helper()
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	// A rotten block is mended under a new server meanwhile; a sender pushes again then.
	waiting.Until(t, func() bool { return j.Append(t.Context(), batchOf(late)) == nil }, "the journal takes nothing")
	all := readUntil(t, j, fresh, "late")
	quarantine, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, q := range quarantine {
		if q.From == 0 {
			continue // a file without records
		}
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
	assert.InDelta(t, float64(len(lost)), j.metric(t, "auditrelay_journal_lost_records"), 0)
	old := readUntil(t, j, "k", "late")
	for p, ids := range w.holds {
		if p > w.acked && !named[p] {
			assert.NotZero(t, old[ids[0]], "position %d never comes to the sink that was not done with it", p)
		}
	}
	w.acked = uint64(len(w.holds)) // and more
	return lost
}

// readUntil reads up to the event id. As the pump does, it tries again after an error: a
// rotten block may just be mended under a new server.
func readUntil(t *testing.T, j *opened, sink, id string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	got := map[string]int{}
	for failed := error(nil); got[id] == 0; {
		require.NoError(t, ctx.Err(), "sink %s after %d events: %v", sink, len(got), failed)
		s, err := j.Source(ctx, sink, relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
		if err != nil {
			failed = err
			continue
		}
		failed = readInto(ctx, s, got, id)
		s.Close()
	}
	return got
}

func readInto(ctx context.Context, s *Source, got map[string]int, id string) error {
	for got[id] == 0 {
		b, err := s.Next(ctx)
		if err != nil {
			return err
		}
		for i := range b.Events {
			got[b.Events[i].ID]++
		}
		if err := s.Ack(ctx, b.Position); err != nil {
			return err
		}
	}
	return nil
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

func (w *wreck) verify(t *testing.T) *datadir.Verification {
	t.Helper()
	o, err := streamserver.OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.NoError(t, err)
	v, err := o.Verify(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, o.Close())
	return v
}
