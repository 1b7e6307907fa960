package tiles

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/timeline"
)

// damage is done to the entries' stream, by sequence.
type damage struct {
	change map[uint64]func(m *nats.Msg)
	remove []uint64
	cut    uint64 // the last sequence left; 0 for all
	// checkpoints are removed from the checkpoints' stream.
	checkpoints []uint64
}

// damaged is a copy of the house with another entries' stream, not opened yet. It reads its
// lost entries from the same files.
func (h *house) damaged(d damage) *house {
	h.tb.Helper()
	dir := h.tb.TempDir()
	other := &house{tb: h.tb, js: natstest.JetStream(h.tb, natstest.Run(h.tb, filepath.Join(dir, "server"))), store: h.store, options: h.options}
	other.options.KeyFile = filepath.Join(dir, "audit.key")
	other.options.Copy = NewCopies(h.store).Record
	for _, suffix := range []string{"", ".checkpoint"} {
		data, err := os.ReadFile(h.options.KeyFile + suffix)
		require.NoError(h.tb, err)
		require.NoError(h.tb, os.WriteFile(other.options.KeyFile+suffix, data, 0o600))
	}
	for _, name := range []string{"TEST_AUDIT", "TEST_CHECKPOINTS"} {
		from, err := h.js.Stream(h.tb.Context(), name)
		require.NoError(h.tb, err)
		other.copyDamaged(from, d)
		d = damage{remove: d.checkpoints}
	}
	return other
}

func (h *house) copyDamaged(from jetstream.Stream, d damage) {
	h.tb.Helper()
	config := from.CachedInfo().Config
	open := config
	open.DenyDelete, open.DenyPurge = false, false
	stream, err := h.js.CreateStream(h.tb.Context(), open)
	require.NoError(h.tb, err)
	last := from.CachedInfo().State.LastSeq
	if d.cut > 0 {
		last = d.cut
	}
	for seq := uint64(1); seq <= last; seq++ {
		m, err := from.GetMsg(h.tb.Context(), seq)
		require.NoError(h.tb, err)
		msg := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		if change := d.change[seq]; change != nil {
			change(msg)
		}
		_, err = h.js.PublishMsg(h.tb.Context(), msg)
		require.NoError(h.tb, err)
	}
	for _, seq := range d.remove {
		require.NoError(h.tb, stream.DeleteMsg(h.tb.Context(), seq))
	}
	_, err = h.js.UpdateStream(h.tb.Context(), config)
	require.NoError(h.tb, err)
}

func forge(m *nats.Msg) { m.Data = bytes.Replace(m.Data, []byte(`"value":`), []byte(`"value":9`), 1) }
func spoil(m *nats.Msg) { m.Data = []byte("{") }

// all reads the trail from its first entry to its end.
func (h *house) all() (list []audit.Recorded) {
	h.tb.Helper()
	require.NoError(h.tb, h.trail.Each(h.tb.Context(), 0, func(e audit.Recorded) error {
		list = append(list, e)
		return nil
	}))
	return list
}

// What the stream has lost, every reader gets from the files; it is named as restored,
// once, and not as damage.
func TestEntriesLostInTheStreamAreReadFromTheFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.add(long(300))
	h.run()
	h = h.damaged(damage{change: map[uint64]func(*nats.Msg){8: forge, 21: spoil}, remove: []uint64{31, 32}, cut: 290})
	h.open()
	report, err := h.trail.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.Err())
	var runs [][2]int64
	for _, p := range report.Restored {
		require.Equal(t, "restored", p.Kind)
		runs = append(runs, [2]int64{p.From, p.To})
	}
	require.Equal(t, [][2]int64{{7, 7}, {20, 20}, {30, 31}, {290, 300}}, runs)

	list := h.all()
	require.Len(t, list, 302)
	for i, e := range list[:301] {
		require.EqualValues(t, i, e.Index)
		require.False(t, e.Unsound)
		got, err := h.trail.Get(t.Context(), int64(i))
		require.NoError(t, err)
		require.Equal(t, e, got)
		if i < 300 {
			require.Equal(t, string(message(t, i).Data), string(e.Record))
		}
	}
	require.Equal(t, audit.TypeRestored, list[301].Type)
	last, found, err := h.trail.Last(t.Context(), "acme", "live", "resource")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 300, last.Index)
	require.False(t, last.Unsure)
	require.JSONEq(t, string(long(300).After), string(last.After))
	_, err = h.trail.AppendIf(t.Context(), entry(301), 289)
	require.ErrorIs(t, err, audit.ErrConflict, "entry 300 is the newest one")
	h.timelineHas(302)
	h.sign()
	require.EqualValues(t, 302, h.trail.Size(), "it is named once")
	h.run()
	h.requireWhole(0, 302)
	require.Equal(t, string(message(t, 7).Data), string(h.prove(0, 7)))
}

// timelineHas wants an index of n entries, none of them missing.
func (h *house) timelineHas(n int) {
	h.tb.Helper()
	index := timeline.Open(timeline.Options{Path: filepath.Join(h.tb.TempDir(), timeline.FileName), Trail: h.trail})
	ctx, cancel := context.WithCancel(h.tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		index.Keep(ctx)
	}()
	defer func() { cancel(); <-done }()
	require.NoError(h.tb, index.Ready(ctx))
	rows := 0
	_, err := index.List(ctx, timeline.Filter{}, func(r timeline.Row) error {
		require.False(h.tb, r.Missing)
		rows++
		return nil
	})
	require.NoError(h.tb, err)
	require.Equal(h.tb, n, rows)
}

// What both have lost, or forged, is damage, and named.
func TestEntriesLostInBothAreNamed(t *testing.T) {
	t.Parallel()
	for name, spoilFile := range map[string]func([]byte) []byte{
		"forged":     func(b []byte) []byte { return bytes.Replace(b, []byte(`{"value":40}`), []byte(`{"value":41}`), 1) },
		"cut":        func(b []byte) []byte { return b[:bytes.Index(b, []byte(`{"value":40}`))] },
		"file empty": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, 300)
			h.run()
			bundle := filepath.Join(h.store.Log(0).dir, "tile", "entries", "000")
			data, err := os.ReadFile(bundle)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(bundle, spoilFile(data), 0o600))
			h = h.damaged(damage{change: map[uint64]func(*nats.Msg){41: forge, 291: spoil}})
			h.open()
			report, err := h.trail.Verify(t.Context())
			require.NoError(t, err)
			require.Len(t, report.Problems, 1)
			require.Equal(t, "altered", report.Problems[0].Kind)
			require.EqualValues(t, 40, report.Problems[0].From)
			require.Len(t, report.Restored, 1)
			require.EqualValues(t, 290, report.Restored[0].From)
			e, err := h.trail.Get(t.Context(), 40)
			require.NoError(t, err)
			require.True(t, e.Unsound)
			require.Equal(t, audit.TypeRestored, h.all()[301].Type)
			require.Equal(t, audit.TypeDamaged, h.all()[300].Type)
		})
	}
}

// An entry restored from a file is damage at the next start, if the file is lost by then.
func TestACopyThatIsLostLaterIsDamage(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h = h.damaged(damage{change: map[uint64]func(*nats.Msg){41: forge}})
	h.open()
	e, err := h.trail.Get(t.Context(), 40)
	require.NoError(t, err)
	require.False(t, e.Unsound)
	require.NoError(t, os.RemoveAll(h.store.dir))
	h.options.Copy = NewCopies(h.store).Record
	h.sign()
	e, err = h.trail.Get(t.Context(), 40)
	require.NoError(t, err)
	require.True(t, e.Unsound, "the stream's entry is not the signed one")
}
