package nats

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkDeliver delivers 5,000 events of 600 bytes at a time, to a server
// in the same process.
func BenchmarkDeliver(b *testing.B) {
	for _, mode := range []string{"jetstream", "core"} {
		b.Run(mode, func(b *testing.B) {
			srv := startServer(b, func(*server.Options) {})
			createTestStream(b, dial(b, srv), nil)
			sink := newSink(b, srv.Addr().String(), func(c *config.NATS) { c.Mode = mode })
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				b.StopTimer()
				n++
				events := relaytest.Events(5000, relaytest.From(n*5000))
				b.StartTimer()
				require.NoError(b, sink.Deliver(b.Context(), events))
			}
			b.ReportMetric(float64(5000*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	t := parseSubject("auditrelay.{project}.{environment}.{type}")
	builder, events := newBuilder(t), relaytest.Events(1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := builder.message(&events[i%1000], "_INBOX.abcdefghijklmnopqrstuv.123456"); err != nil {
			b.Fatal(err)
		}
	}
}
