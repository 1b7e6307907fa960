package datadog

import (
	"testing"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkAppend encodes one entry, of an event of 600 bytes.
func BenchmarkAppend(b *testing.B) {
	events := relaytest.Events(100)
	for _, where := range []string{"merged", "nested", "none"} {
		b.Run(where, func(b *testing.B) {
			m := makerOf(b, config.Datadog{Attributes: where}).encoder()
			b.ReportAllocs()
			n := 0
			var text []byte
			var err error
			for b.Loop() {
				if text, err = m.appendEntry(text[:0], &events[n%len(events)], sentAt()); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.SetBytes(int64(len(text)))
		})
	}
}
