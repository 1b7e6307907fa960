package deadletters

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkReject keeps a whole refused delivery of 5,000 events. The server syncs before
// it answers.
func BenchmarkReject(b *testing.B) {
	s := open(b, b.TempDir(), testConfig)
	b.Cleanup(func() { s.shut(b) })
	refused := rejectionsOf(relaytest.Events(5000), "the schema registry knows no such field")
	for b.Loop() {
		require.NoError(b, s.Reject(b.Context(), "k", refused))
	}
	b.ReportMetric(float64(len(refused)*b.N)/b.Elapsed().Seconds(), "letters/s")
}

// BenchmarkRemove removes them as a replay or a discard of all does.
func BenchmarkRemove(b *testing.B) {
	s := open(b, b.TempDir(), testConfig)
	b.Cleanup(func() { s.shut(b) })
	refused := rejectionsOf(relaytest.Events(5000), "no")
	removed := 0
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, s.Reject(b.Context(), "k", refused))
		b.StartTimer()
		var found []uint64
		require.NoError(b, s.Find(b.Context(), Filter{Sink: "k"}, func(l Letter) bool {
			found = append(found, l.Sequence)
			return true
		}))
		require.NoError(b, s.Remove(b.Context(), "k", found))
		removed += len(found)
	}
	b.ReportMetric(float64(removed)/b.Elapsed().Seconds(), "letters/s")
}
