package datadog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const benchEvents = 5000 // a sink's default batch_events

// BenchmarkDeliver delivers 5000 events, which are five requests, to a strict intake in this
// process. The figures include the work of the intake, which unpacks and reads every entry.
// ns/op and allocs/op are per delivery.
func BenchmarkDeliver(b *testing.B) {
	events := relaytest.Events(benchEvents)
	for _, where := range []string{"merged", "none"} {
		for _, compression := range []string{"gzip", "none"} {
			b.Run(where+"/"+compression, func(b *testing.B) {
				d, err := realservers.StartDatadogIntake(realservers.DatadogOptions{APIKey: testKey, Now: sentAt})
				require.NoError(b, err)
				defer d.Close()
				s := newSink(b, d.URL, func(c *config.Datadog) { c.Attributes, c.Compression = where, compression })
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					require.NoError(b, s.Deliver(b.Context(), events))
					n++
				}
				b.ReportMetric(float64(n)*benchEvents/b.Elapsed().Seconds(), "events/s")
				require.Empty(b, d.Violations())
				require.Len(b, d.IDs(), benchEvents)
				for _, times := range d.IDs() {
					require.Equal(b, n, times)
				}
			})
		}
	}
}
