package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkDeliver delivers 5000 events at a time to a broker in this process. The figures
// include the work of the broker, which checks the records and drops them. ns/op and allocs/op
// are per delivery.
func BenchmarkDeliver(b *testing.B) {
	for _, compression := range []string{"snappy", "zstd", "lz4", "none"} {
		b.Run(compression, func(b *testing.B) {
			c := newCluster(b, kfake.BlackholeProduce(), kfake.SeedTopics(6, testTopic))
			s := c.sink(b, func(cfg *config.Kafka) { cfg.Compression = compression })
			const n = 5000
			events := relaytest.Events(n, relaytest.Environments("a/1", "a/2", "a/3", "b/4", "b/5", "b/6", "c/7", "c/8"))
			bytes := 0
			for i := range events {
				bytes += len(events[i].Body)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, s.Deliver(b.Context(), events))
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkEncode measures the sink's own share: making batches of events.
func BenchmarkEncode(b *testing.B) {
	events := relaytest.Events(1000, relaytest.BodyBytes(617))
	run := make([]int32, len(events))
	size := 0
	for i := range run {
		run[i] = int32(i)
		events[i].Received = events[i/100*100].Received // as in pushes of 100 events
		size += len(events[i].Body)
	}
	for _, c := range []struct{ compression, mode string }{{"snappy", "binary"}, {"none", "binary"}, {"snappy", "structured"}, {"snappy", "batch"}, {"none", "batch"}} {
		b.Run(c.compression+"/"+c.mode, func(b *testing.B) {
			f := form{key: environmentKey, mode: modeNamed(c.mode)}
			compression := compressionNamed(c.compression)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var set batch
			for b.Loop() {
				require.NoError(b, set.encode(events, run, f, compression))
			}
			b.ReportMetric(float64(b.N)*float64(len(events))/b.Elapsed().Seconds(), "events/s")
		})
	}
}
