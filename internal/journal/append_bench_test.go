package journal

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkAppend pushes 100 events at a time from several goroutines.
func BenchmarkAppend(b *testing.B) {
	for _, pushers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("pushers=%d", pushers), func(b *testing.B) {
			log := slog.New(slog.DiscardHandler)
			cfg := testConfig
			cfg.MaxBytes = 64 << 30
			conn, err := streamserver.Connect(b.Context(), b.TempDir(), cfg, log)
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
