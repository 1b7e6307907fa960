package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// BenchmarkReject keeps a delivery of 5,000 events that a sink refused whole, with a
// server that syncs before it answers.
func BenchmarkReject(b *testing.B) {
	j := open(b, b.TempDir(), testConfig)
	b.Cleanup(func() { j.shut(b) })
	refused := rejectionsOf(relaytest.Events(5000), "the schema registry knows no such field")
	for b.Loop() {
		require.NoError(b, j.Reject(b.Context(), "k", refused))
	}
	b.ReportMetric(float64(len(refused)*b.N)/b.Elapsed().Seconds(), "letters/s")
}

func rejectionsOf(events []relay.Event, reason string) []relay.Rejection {
	out := make([]relay.Rejection, len(events))
	for i := range events {
		out[i] = relay.Rejection{Event: events[i], Reason: reason, Attempts: 1}
	}
	return out
}

// BenchmarkRemoveDeadLetters removes them as a replay or a discard of all does.
func BenchmarkRemoveDeadLetters(b *testing.B) {
	j := open(b, b.TempDir(), testConfig)
	b.Cleanup(func() { j.shut(b) })
	refused := rejectionsOf(relaytest.Events(5000), "no")
	removed := 0
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, j.Reject(b.Context(), "k", refused))
		b.StartTimer()
		var found []uint64
		require.NoError(b, j.FindDeadLetters(b.Context(), LetterFilter{Sink: "k"}, func(d DeadLetter) bool {
			found = append(found, d.Sequence)
			return true
		}))
		require.NoError(b, j.RemoveDeadLetters(b.Context(), "k", found))
		removed += len(found)
	}
	b.ReportMetric(float64(removed)/b.Elapsed().Seconds(), "letters/s")
}
