package datadog

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadogV2"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const benchEvents = 1000

func perEvent(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
}

// BenchmarkDeliver delivers 1000 events, one request, to a server that drops
// them. ns/op and allocs/op are per delivery.
func BenchmarkDeliver(b *testing.B) {
	url := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	events := relaytest.Events(benchEvents)
	for _, where := range []string{"merged", "none"} {
		for _, compression := range []string{"gzip", "none"} {
			b.Run(where+"/"+compression, func(b *testing.B) {
				s := newSink(b, url, func(c *config.Datadog) { c.Attributes, c.Compression = where, compression })
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, s.Deliver(b.Context(), events))
				}
				perEvent(b)
			})
		}
	}
}

// BenchmarkClientJSON is the client's share in it: HTTPLogItem's encoding, as
// SubmitLog does it.
func BenchmarkClientJSON(b *testing.B) {
	events := relaytest.Events(benchEvents)
	for _, where := range []string{"merged", "none"} {
		b.Run(where, func(b *testing.B) {
			s := newSink(b, "http://127.0.0.1:1", func(c *config.Datadog) { c.Attributes = where })
			items := make([]datadogV2.HTTPLogItem, len(events))
			for i := range events {
				e, err := s.maker.Make(&events[i], sentAt())
				require.NoError(b, err)
				items[i] = itemOf(e)
			}
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, json.NewEncoder(io.Discard).Encode(&items))
			}
			perEvent(b)
		})
	}
}
