package tiles

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// house is a trail with its logs.
type house struct {
	tb      testing.TB
	kept    store.Store // of the trail
	options audit.Options
	trail   *audit.Trail
	store   *Store
}

// newHouse makes a trail of n entries, signed, without logs yet.
func newHouse(tb testing.TB, n int) *house {
	tb.Helper()
	return newHouseOf(tb, "example.com/trail", n)
}

func newHouseOf(tb testing.TB, origin string, n int) *house {
	tb.Helper()
	dir := tb.TempDir()
	h := &house{
		tb: tb, kept: keptIn(tb, dir), store: Open(filepath.Join(dir, Dir)),
		options: audit.Options{KeySource: audit.KeySource{Origin: origin, KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour},
	}
	h.open()
	h.close() // the key is there
	trailtest.Fill(tb, h.kept, n, entry)
	h.open()
	h.sign()
	return h
}

// keptIn opens a store in a folder until the test ends.
func keptIn(tb testing.TB, dir string) store.Store {
	tb.Helper()
	s := trailtest.Store(tb, dir)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// message is the record of entry i.
func message(tb testing.TB, i int) string {
	tb.Helper()
	raw, err := json.Marshal(entry(i))
	require.NoError(tb, err)
	record, err := jsontext.Canonical(raw)
	require.NoError(tb, err)
	return string(record)
}

func entry(i int) audit.Entry {
	return audit.Entry{
		Type: "settings.changed", Project: "acme", Environment: "live", Subject: "resource",
		Time: time.Unix(1_700_000_000+int64(i), 0).UTC(), After: json.RawMessage(fmt.Sprintf(`{"value":%d}`, i)),
	}
}

func (h *house) open() {
	h.tb.Helper()
	trail, err := audit.Open(h.tb.Context(), h.kept, h.options)
	require.NoError(h.tb, err)
	_, err = trail.End(h.tb.Context()) // it is read by then
	require.NoError(h.tb, err)
	h.trail = trail
	h.tb.Cleanup(func() { _ = trail.Close(context.WithoutCancel(h.tb.Context())) })
}

func (h *house) close() {
	h.tb.Helper()
	require.NoError(h.tb, h.trail.Close(h.tb.Context()))
}

// sign has all entries signed, in a trail opened again.
func (h *house) sign() {
	h.tb.Helper()
	h.close()
	h.open()
}

// add appends entries.
func (h *house) add(entries ...audit.Entry) {
	h.tb.Helper()
	for _, e := range entries {
		_, err := h.trail.Append(h.tb.Context(), e)
		require.NoError(h.tb, err)
	}
	h.sign()
}

// drafts are the records of one of the trail's logs.
func (h *house) drafts(name string) (all []store.Draft) {
	h.tb.Helper()
	log, err := h.kept.Log(h.tb.Context(), name, store.Options{})
	require.NoError(h.tb, err)
	for item, err := range log.Read(h.tb.Context(), 1, false) {
		require.NoError(h.tb, err)
		d := item.Record.Draft
		d.Data = bytes.Clone(d.Data)
		all = append(all, d)
	}
	return all
}

// copyLog copies the records of a log to another house.
func (h *house) copyLog(to *house, name string) { to.append(name, h.drafts(name)) }

func (h *house) append(name string, drafts []store.Draft) {
	h.tb.Helper()
	log, err := h.kept.Log(h.tb.Context(), name, store.Options{})
	require.NoError(h.tb, err)
	_, err = log.Append(h.tb.Context(), drafts...)
	require.NoError(h.tb, err)
}

func (h *house) keeper() *Keeper { return NewKeeper(h.store, h.trail, h.trail.Generations, nil) }

// run writes the logs to the trail's end.
func (h *house) run() {
	h.tb.Helper()
	require.NoError(h.tb, h.keeper().Run(h.tb.Context()))
}

// key is the public key of a log's checkpoint.
func (h *house) key(number int) string {
	h.tb.Helper()
	_, c, err := h.store.Log(number).Checkpoint()
	require.NoError(h.tb, err)
	for _, g := range h.trail.Generations() {
		if g.Origin == c.Origin {
			return g.PublicKey
		}
	}
	h.tb.Fatalf("the trail has no generation %s", c.Origin)
	return ""
}

// requireWhole reads all of a log, and holds it against the trail.
func (h *house) requireWhole(number int, size int64) {
	h.tb.Helper()
	l := h.store.Log(number)
	require.NoError(h.tb, l.Check(h.tb.Context(), h.key(number), 0))
	_, c, err := l.Checkpoint()
	require.NoError(h.tb, err)
	require.Equal(h.tb, size, c.Size)
}

// prove reads an entry as a stranger does: with tlog's own client of tiles.
func (h *house) prove(number int, n int64) []byte {
	h.tb.Helper()
	l := h.store.Log(number)
	_, c, err := l.Checkpoint()
	require.NoError(h.tb, err)
	reader := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, proof.TileReader(l.Tile))
	path, err := tlog.ProveRecord(c.Size, n, reader)
	require.NoError(h.tb, err)
	leaf, err := l.entry(n)
	require.NoError(h.tb, err)
	require.NoError(h.tb, tlog.CheckRecord(path, c.Size, c.Root, n, tlog.RecordHash(leaf)))
	return leaf
}

// long is an entry whose record does not fit into a bundle.
func long(i int) audit.Entry {
	e := entry(i)
	e.After, _ = json.Marshal(map[string]string{"html": strings.Repeat("<p>style</p>", 6000)})
	return e
}

func textLogger(w *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
