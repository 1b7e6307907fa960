package cloudevents

import (
	"bytes"
	"testing"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func BenchmarkEncoder(b *testing.B) {
	for _, plain := range []bool{true, false} {
		name := map[bool]string{true: "plain", false: "escaped"}[plain]
		b.Run(name, func(b *testing.B) {
			events := relaytest.Events(100, relaytest.BodyBytes(617))
			for i := range events {
				events[i].Received = events[0].Received // as of one push
				if plain {
					events[i].Body = bytes.ReplaceAll(events[i].Body, []byte(`\`), []byte("_"))
				}
			}
			var x Encoder
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = dst[:0]
				for i := range events {
					dst = x.Append(dst, &events[i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
