package journal

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

var testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}

var silent = slog.New(slog.DiscardHandler)

// opened is a journal on a store on disk.
type opened struct {
	*Journal
	store *disk.Store
	names *Quarantine
	reg   *prometheus.Registry
}

// metric is the value of a counter or a gauge, of the first one with labels.
func (o *opened) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := o.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if m := f.GetMetric(); f.GetName() == name {
			return m[0].GetCounter().GetValue() + m[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}

func open(t testing.TB, dir string, cfg config.Journal, with ...func(*Options)) *opened {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: storeIn(dir), Salvage: filepath.Join(dir, "salvage"), Writer: "test", Logger: silent})
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	names, err := OpenQuarantine(t.Context(), s, QuarantineOptions{Logger: silent, Registerer: reg, Fuse: true})
	require.NoError(t, err)
	opts := Options{Logger: silent, Registerer: reg, Quarantine: names}
	for _, change := range with {
		change(&opts)
	}
	set, err := Open(t.Context(), s, cfg, opts)
	require.NoError(t, err)
	o := &opened{set.Logs()[0], s, names, reg}
	t.Cleanup(func() { o.shut(t) })
	return o
}

// storeIn is the folder of the store.
func storeIn(dir string) string { return filepath.Join(dir, "store") }

// shut closes everything; a second time it does nothing.
func (o *opened) shut(t testing.TB) {
	t.Helper()
	o.Close()
	assert.NoError(t, o.names.Close())
	if _, err := o.store.Table().Get(context.Background(), "any"); !errors.Is(err, store.ErrClosed) {
		assert.NoError(t, o.store.Close())
	}
}

// delivered is the newest record acknowledged by every sink.
func (o *opened) delivered(ctx context.Context) (uint64, error) {
	free, err := o.standing(ctx)
	return uint64(free.end) - 1, err
}

func (o *opened) push(t *testing.T, events []relay.Event) {
	t.Helper()
	require.NoError(t, o.Append(t.Context(), batchOf(events)))
}

func batchOf(events []relay.Event) *record.Batch {
	var b record.Batch
	for i := range events {
		b.AddEvent(&events[i])
	}
	return &b
}

func (o *opened) source(t *testing.T, name string) *Source {
	t.Helper()
	s, err := o.Source(t.Context(), name, relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
	require.NoError(t, err)
	return s
}

// read takes n events from s, and acknowledges them where ack is set.
func read(t *testing.T, s *Source, n int, ack bool) []relay.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
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
