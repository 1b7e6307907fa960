package journal

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A sound journal is read as it is, and nothing is mended or named, whatever
// was trimmed.
func TestASoundJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	sound := newWreck(t, 40, 40)
	for _, crashed := range []bool{false, true} {
		for _, trimTo := range []uint64{0, 20, 40} {
			w := sound.copied(t)
			j := open(t, w.dir, w.cfg)
			if trimTo > 0 {
				require.NoError(t, j.stream.Purge(t.Context(), jetstream.WithPurgeSequence(trimTo+1)))
			}
			late := relaytest.Events(1)
			late[0].ID = "late"
			j.push(t, late)
			readUntil(t, j, "new", "late") // begins behind the trimmed records
			j.shut(t)
			if crashed {
				w.dropIndex(t)
			}
			var log bytes.Buffer
			conn, err := streamserver.Connect(t.Context(), w.dir, w.cfg, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
			require.NoError(t, err)
			assert.Empty(t, conn.Mended)
			again, err := Open(t.Context(), conn, w.cfg, Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			require.NoError(t, err)
			q, err := again.Losses.All(t.Context())
			require.NoError(t, err)
			assert.Empty(t, q)
			again.Close()
			require.NoError(t, conn.Close())
			assert.NotContains(t, log.String(), "level=ERROR")
		}
	}
}

// A repair keeps the bytes it takes out, and exports records refused by the relay's own
// checksum.
func TestRepairKeepsWhatItTakesOut(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	j := open(t, w.dir, w.cfg)
	rec := record.Append(nil, batchOf(relaytest.Events(2)).Bytes(), 2)
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

	_, err = Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler), RepairOptions{})
	require.NoError(t, err)
	again, err := Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler), RepairOptions{})
	require.NoError(t, err)
	assert.Empty(t, again.Mended)
	assert.Empty(t, again.SetAside)
	assert.Equal(t, []string{"k"}, again.Positions)
	kept, err := filepath.Glob(filepath.Join(w.dir, datadir.SalvageDir, "*"))
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
	conn, err := streamserver.Connect(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, conn.Mended, 1)
	require.NoError(t, conn.Close())
	assert.Equal(t, []uint64{frame.Seq}, w.account(t, "fresh"))
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	q, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, conn.Mended[0].Kept, q[0].Kept)
	assert.Equal(t, frame.Size, q[0].Bytes, "the quarantine holds the bytes, too")
}

func TestInspectShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	o, err := streamserver.OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.NoError(t, err)
	_, err = streamserver.OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.ErrorContains(t, err, "stop it first")
	in, err := o.Inspect(t.Context(), nil)
	require.NoError(t, err)
	var done, total int64
	last, err := o.Read(t.Context(), w.names.events, func(d, n int64) { done, total = d, n },
		func(uint64, string, nats.Header, []byte) error { return nil })
	require.NoError(t, err)
	assert.EqualValues(t, 30, last)
	assert.Positive(t, total)
	assert.Equal(t, total, done, "the progress comes to its end")
	require.NoError(t, o.Close())
	events := in.Streams[0]
	assert.Equal(t, []uint64{30, 90, 1, 30}, []uint64{events.Records, events.Events, events.First, events.Last})
	assert.Equal(t, []datadir.PositionSummary{{Sink: "k", Position: 10, LagRecords: 20, LagEvents: 60}}, in.Sinks)
	_, err = streamserver.OpenOffline(t.TempDir(), "X")
	require.ErrorContains(t, err, "holds no journal")
}

// Trimmed records may still stand in the first block, and are not shown.
func TestInspectAfterATrim(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 11)
	j := open(t, w.dir, w.cfg)
	gone, err := j.Trim(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 11, gone)
	j.shut(t)
	frames := uint64(0)
	for _, path := range w.blocks(t) {
		b, err := blockfile.Read(w.names.events, path)
		require.NoError(t, err)
		frames += uint64(len(b.Frames(0)))
	}
	require.Greater(t, frames, uint64(19), "the trim ended with a block: choose another position")
	o, err := streamserver.OpenOffline(w.dir, w.cfg.StreamPrefix)
	require.NoError(t, err)
	in, err := o.Inspect(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, o.Close())
	events := in.Streams[0]
	assert.Equal(t, []uint64{19, 57, 12, 30}, []uint64{events.Records, events.Events, events.First, events.Last})
}
