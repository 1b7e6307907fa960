package tiles

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// harm is done to the entries' log, by position.
type harm struct {
	change map[store.Pos]func(d *store.Draft)
	rot    []int // records that cannot be read any more
	cut    int   // the last record left; 0 for all
	// checkpoints cannot be read any more.
	checkpoints []int
}

// harmed is a copy of the house with another entries' log, not opened yet. It reads its
// lost entries from the same files.
func (h *house) harmed(d harm) *house {
	h.tb.Helper()
	dir := h.tb.TempDir()
	other := &house{tb: h.tb, store: h.store, options: h.options}
	other.options.KeyFile = filepath.Join(dir, "audit.key")
	other.options.Files = h.store
	for _, suffix := range []string{"", ".checkpoint"} {
		data, err := os.ReadFile(h.options.KeyFile + suffix)
		require.NoError(h.tb, err)
		require.NoError(h.tb, os.WriteFile(other.options.KeyFile+suffix, data, 0o600))
	}
	kept := trailtest.Store(h.tb, dir)
	other.kept = kept
	entries := h.drafts(audit.EntriesLog)
	if d.cut > 0 {
		entries = entries[:d.cut]
	}
	for pos, change := range d.change {
		change(&entries[pos-1])
	}
	other.append(audit.EntriesLog, entries)
	h.copyLog(other, audit.CheckpointsLog)
	require.NoError(h.tb, kept.Close())
	for _, pos := range slices.Backward(d.rot) { // those before it keep their numbers
		_, err := damage.Of(dir).FlipRecord(audit.EntriesLog, pos-1)
		require.NoError(h.tb, err)
	}
	for _, pos := range slices.Backward(d.checkpoints) {
		_, err := damage.Of(dir).FlipRecord(audit.CheckpointsLog, pos-1)
		require.NoError(h.tb, err)
	}
	other.kept = keptIn(h.tb, dir)
	return other
}

func forge(m *store.Draft) {
	m.Data = bytes.Replace(m.Data, []byte(`"value":`), []byte(`"value":9`), 1)
}
func spoil(m *store.Draft) { m.Data = []byte("{") }

// all reads the trail from its first entry to its end.
func (h *house) all() (list []audit.Recorded) {
	h.tb.Helper()
	require.NoError(h.tb, h.trail.Each(h.tb.Context(), 0, func(e audit.Recorded) error {
		list = append(list, e)
		return nil
	}))
	return list
}

// What the log has lost, every reader gets from the files. It is no damage, and the trail names
// it once.
func TestEntriesLostInTheLogAreReadFromTheFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.add(long(300))
	h.run()
	h = h.harmed(harm{change: map[store.Pos]func(*store.Draft){8: forge, 21: spoil}, rot: []int{31, 32}, cut: 290})
	h.open()
	report := trailtest.Verify(t, h.trail, h.store)
	require.Empty(t, report.Problems)
	var runs [][2]int64
	for _, p := range report.Restored {
		require.Equal(t, "restored", p.Kind)
		runs = append(runs, [2]int64{p.From, p.To})
	}
	require.Equal(t, [][2]int64{{7, 7}, {20, 20}, {30, 31}, {290, 300}}, runs)

	list := h.all()
	require.Len(t, list, 302)
	require.Equal(t, audit.TypeRestored, list[301].Type)
	for i, e := range list {
		require.EqualValues(t, i, e.Index)
		require.False(t, e.Unsound)
		got, err := h.trail.Get(t.Context(), int64(i))
		require.NoError(t, err)
		require.Equal(t, e, got)
		if i < 300 {
			require.Equal(t, message(t, i), string(e.Record))
		}
	}
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
	h.sign()
	require.EqualValues(t, 302, h.trail.Size(), "it is named once")
	h.run()
	h.requireWhole(0, 302)
	require.Equal(t, message(t, 7), string(h.prove(0, 7)))
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
			h = h.harmed(harm{change: map[store.Pos]func(*store.Draft){41: forge, 291: spoil}})
			h.open()
			report := trailtest.Verify(t, h.trail, h.store)
			require.Len(t, report.Problems, 1)
			require.Equal(t, "altered", report.Problems[0].Kind)
			require.EqualValues(t, 40, report.Problems[0].From)
			require.Len(t, report.Restored, 1)
			require.EqualValues(t, 290, report.Restored[0].From)
			e, err := h.trail.Get(t.Context(), 40)
			require.NoError(t, err)
			require.True(t, e.Unsound)
			require.Len(t, h.all(), 302)
			require.Equal(t, audit.TypeDamaged, h.all()[300].Type)
			require.Equal(t, audit.TypeRestored, h.all()[301].Type)
		})
	}
}

// An entry restored from a file is damage at the next start, if the file is lost by then.
func TestACopyThatIsLostLaterIsDamage(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h = h.harmed(harm{change: map[store.Pos]func(*store.Draft){41: forge}})
	h.open()
	e, err := h.trail.Get(t.Context(), 40)
	require.NoError(t, err)
	require.False(t, e.Unsound)
	require.NoError(t, os.RemoveAll(h.store.dir))
	h.options.Files = h.store
	h.sign()
	e, err = h.trail.Get(t.Context(), 40)
	require.NoError(t, err)
	require.True(t, e.Unsound, "the log's entry is not the signed one")
}

// The files are lost while the relay runs, and they alone had an entry. Readers pass over it, the trail names it,
// and the files are written again from the others.
func TestFilesThatAreLostWhileTheRelayRunsStopNobody(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	h = h.harmed(harm{rot: []int{41}})
	h.options.Files = h.store
	h.open()
	others := func() (n int) {
		for _, e := range h.all() {
			if e.Project == "acme" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 300, others())
	require.NoError(t, os.RemoveAll(h.store.dir))
	require.Equal(t, 299, others())
	h.run()
	require.NoError(t, h.trail.Sign(t.Context())) // reads the trail back
	list := h.all()
	require.Equal(t, audit.TypeDamaged, list[len(list)-1].Type)
}
