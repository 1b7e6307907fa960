package losses

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}

// opened is a ledger on a connection of its own.
type opened struct {
	*Ledger
	conn *streamserver.Conn
}

func open(t *testing.T, cfg config.Journal, failed func(error)) *opened {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), t.TempDir(), cfg, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	events, err := conn.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TEST_EVENTS", Subjects: []string{"test.events"}})
	require.NoError(t, err)
	l, err := Open(t.Context(), conn, events, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry(), Failed: failed})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return &opened{l, conn}
}

// external is a configuration for a server of its own.
func external(t *testing.T) config.Journal {
	t.Helper()
	cfg := testConfig
	cfg.URL = natstest.Run(t, t.TempDir()).ClientURL()
	return cfg
}

// recordOf is a record of one event. Each has a salt of its own.
func recordOf(n int) []byte {
	var b record.Batch
	b.AddEvent(&relaytest.Events(1, relaytest.From(n))[0])
	return record.Append(nil, b.Bytes(), 1)
}

// push publishes n records as a committer does, and returns the last one.
func (o *opened) push(t *testing.T, n int) (data []byte) {
	t.Helper()
	for i := range n {
		data = recordOf(i)
		ack, err := o.conn.JetStream.Publish(t.Context(), "test.events", data)
		require.NoError(t, err)
		require.NoError(t, o.Place(history.Place{Seq: ack.Sequence, Sum: record.Checksum(data)}, false))
	}
	return data
}

func TestTheQuarantineIsToldUntilItIsHeard(t *testing.T) {
	t.Parallel()
	l := open(t, testConfig, nil)
	for _, from := range []uint64{7, 9, 7} {
		q := datadir.Quarantined{Stream: "TEST_EVENTS", From: from, To: from + 1, Reason: "a\nb"}
		require.NoError(t, l.Name(t.Context(), q, []byte("raw")))
	}
	var told []uint64
	failures := 1
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	err := l.Follow(ctx, func(_ context.Context, q datadir.Quarantined) error {
		if failures--; failures >= 0 {
			return assert.AnError
		}
		assert.Equal(t, datadir.Quarantined{Stream: "TEST_EVENTS", From: q.From, To: q.From + 1, Reason: "a b", Time: q.Time, Bytes: 3}, q)
		if told = append(told, q.From); len(told) == 2 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []uint64{7, 9}, told)
	assert.InDelta(t, 2, testutil.ToFloat64(l.metrics.quarantined), 0)
}

// Appends between the question and its answer are no loss.
func TestAppendsWhileTheServerIsAskedAreNoLoss(t *testing.T) {
	t.Parallel()
	l := open(t, external(t), nil)
	l.push(t, 3)
	before := l.known()
	info, err := l.stream.Info(t.Context())
	require.NoError(t, err)
	l.push(t, 3)
	back, err := l.wentBack(t.Context(), info, before)
	require.NoError(t, err)
	assert.False(t, back)
	back, err = l.wentBack(t.Context(), info, l.known())
	require.NoError(t, err)
	assert.True(t, back, "the order matters")
}

// A stream that is taken away ends the relay, as only a start makes streams.
func TestTheStreamIsTakenAwayWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	var failed error
	l := open(t, external(t), func(err error) { failed = err })
	l.push(t, 3)
	require.NoError(t, l.Compare(t.Context()))
	require.NoError(t, failed)
	require.NoError(t, l.conn.JetStream.DeleteStream(t.Context(), "TEST_EVENTS"))
	require.ErrorIs(t, l.Compare(t.Context()), ErrReplaced)
	require.ErrorIs(t, failed, ErrReplaced)
}

// An embedded server that gives a position to two records has lost its end, and only a
// start mends its files. An answer to a retry is no second record.
func TestAPositionIsGivenTwice(t *testing.T) {
	t.Parallel()
	l := open(t, testConfig, nil)
	third := l.push(t, 3)
	require.NoError(t, l.Place(history.Place{Seq: 3, Sum: record.Checksum(third)}, true))
	require.ErrorIs(t, l.Place(history.Place{Seq: 3, Sum: record.Checksum(recordOf(7))}, false), ErrGivenTwice)
}

// No gap is named twice, whatever its reason.
func TestAGapIsNamedOnce(t *testing.T) {
	t.Parallel()
	lost := 0
	l := open(t, testConfig, nil)
	l.lost = func() { lost++ }
	l.push(t, 3)
	require.NoError(t, l.NamePassed(t.Context(), 2, 4))
	require.NoError(t, l.NamePassed(t.Context(), 2, 2))
	require.NoError(t, l.Report(t.Context(), []datadir.Span{{From: 1, To: 3}}))
	all, err := l.All(t.Context())
	require.NoError(t, err)
	var spans [][2]uint64
	for _, q := range all {
		spans = append(spans, [2]uint64{q.From, q.To})
	}
	assert.Equal(t, [][2]uint64{{2, 3}, {1, 1}}, spans)
	assert.Equal(t, 2, lost)
	assert.InDelta(t, 3, testutil.ToFloat64(l.metrics.lost), 0)
}

// A repair copies undecodable records to the salvage folder. Sound ones stay unnamed.
func TestUnreadableRecordsAreNamed(t *testing.T) {
	t.Parallel()
	l := open(t, testConfig, nil)
	l.push(t, 2)
	_, err := l.conn.JetStream.Publish(t.Context(), "test.events", []byte("no record at all"))
	require.NoError(t, err)
	for range 2 { // again after a crash
		require.NoError(t, l.NameUnreadable(t.Context()))
	}
	all, err := l.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.EqualValues(t, 3, all[0].From)
	assert.FileExists(t, filepath.Join(l.conn.DataDir, all[0].Kept))
}
