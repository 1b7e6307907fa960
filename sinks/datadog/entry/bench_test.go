package entry

import (
	"testing"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkMake makes one entry, of an event of 600 bytes.
func BenchmarkMake(b *testing.B) {
	events := relaytest.Events(100)
	for _, where := range []string{"merged", "nested", "none"} {
		b.Run(where, func(b *testing.B) {
			m := newMaker(b, config.Datadog{Attributes: where})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := m.Make(&events[n%len(events)], sentAt); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
