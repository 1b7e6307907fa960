package record_test

import (
	"testing"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkDigestMade is the cost of a commit's digest: of one push, and of a large commit, as
// under full load.
func BenchmarkDigestMade(b *testing.B) {
	for name, pushes := range map[string]int{"a push": 1, "a large commit": 10} {
		b.Run(name, func(b *testing.B) {
			var raw []byte
			events := relaytest.Events(100*pushes, relaytest.BodyBytes(617))
			for p := range pushes {
				var batch record.Batch
				batch.Begin(record.Group{Source: "/projects/bench/environments/load", Project: "bench", Environment: "load", ContentType: "application/json", Received: time.Now()})
				for _, e := range events[100*p : 100*p+100] {
					batch.Add(&record.Entry{ID: []byte(e.ID), Type: []byte(e.Type), Time: e.Time.UnixNano(), Body: e.Body})
				}
				raw = append(raw, batch.Bytes()...)
			}
			rec := record.Append(nil, raw, len(events))
			for b.Loop() {
				record.DigestMade(rec, record.Content(raw, len(events)))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
