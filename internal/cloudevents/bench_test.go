package cloudevents

import (
	"testing"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func BenchmarkAppendJSON(b *testing.B) {
	events := relaytest.Events(100, relaytest.BodyBytes(617))
	for i := range events {
		events[i].Received = events[0].Received // as of one push
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
}
