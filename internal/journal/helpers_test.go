package journal

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

var testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}

// opened is a journal on an embedded server.
type opened struct {
	*Journal
	conn *streamserver.Conn
	reg  *prometheus.Registry
}

// metric is the value of a counter or a gauge without labels.
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

func open(t testing.TB, dir string, cfg config.Journal) *opened {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), dir, cfg, log)
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	j, err := Open(t.Context(), conn, cfg, Options{Logger: log, Registerer: reg})
	require.NoError(t, err)
	return &opened{j, conn, reg}
}

// delivered is the newest record acknowledged by every sink.
func (o *opened) delivered(ctx context.Context) (uint64, error) {
	record, _, err := o.standing(ctx)
	return record, err
}

func (o *opened) shut(t testing.TB) {
	t.Helper()
	o.Close()
	require.NoError(t, o.conn.Close())
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
