package loki

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkEncode makes a compressed push of 1000 events. ns/op and allocs/op are per push.
func BenchmarkEncode(b *testing.B) {
	f := newFake(b)
	s := f.sink(b, nil)
	c := encoder{Sink: s}
	events := relaytest.Events(1000)
	run := make([]int32, len(events))
	size := 0
	for i := range run {
		run[i] = int32(i)
		size += len(events[i].Body)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.encode(`{service_name="auditrelay"}`, events, run); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(events))/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkDeliver delivers 5000 events at a time to a server in this process that reads and
// drops them. The figures include its work.
func BenchmarkDeliver(b *testing.B) {
	for _, environments := range []int{1, 8} {
		b.Run(fmt.Sprintf("streams=%d", environments), func(b *testing.B) {
			f := newFake(b)
			f.answer = func(*http.Request) *canned { return &canned{status: http.StatusNoContent} }
			s := f.sink(b, nil)
			var names []string
			for i := range environments {
				names = append(names, fmt.Sprintf("a/e%d", i))
			}
			const n = 5000
			events := relaytest.Events(n, relaytest.Environments(names...))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, s.Deliver(b.Context(), events))
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
		})
	}
}
