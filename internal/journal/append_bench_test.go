package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkAppend pushes events from several goroutines.
func BenchmarkAppend(b *testing.B) {
	for _, events := range []int{1, 100} {
		for _, pushers := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("events=%d/pushers=%d", events, 2*pushers), func(b *testing.B) {
				cfg := testConfig
				cfg.MaxBytes = 64 << 30
				j := open(b, b.TempDir(), cfg)
				b.SetParallelism(pushers)
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				b.RunParallel(func(pb *testing.PB) {
					batch := batchOf(relaytest.Events(events))
					for pb.Next() {
						if err := j.Append(b.Context(), batch); err != nil {
							b.Error(err)
						}
					}
				})
				b.StopTimer()
				b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/push")
				b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(testutil.ToFloat64(j.metrics.commits)/float64(b.N), "commits/push")
				j.shut(b)
			})
		}
	}
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
