package journal

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/positions"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// trimAll trims whatever every sink has had, whatever its age, and returns how
// many records went.
func (o *opened) trimAll(t *testing.T) (uint64, error) {
	t.Helper()
	return o.Trim(t.Context(), time.Now().Add(time.Hour))
}

func TestNothingIsTrimmedWhileAKnownSinkHasNoPosition(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	j.source(t, "gone").Close()
	k := j.source(t, "k")
	defer k.Close()
	j.push(t, relaytest.Events(3))
	read(t, k, 3, true)
	require.NoError(t, j.stream.DeleteConsumer(t.Context(), consumerPrefix+"gone"))

	n, err := j.trimAll(t)
	require.ErrorIs(t, err, errUncertain)
	assert.Zero(t, n)
	assert.Equal(t, 1.0, testutil.ToFloat64(j.metrics.doubts))
	list, err := j.Positions.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, positions.Position{Sink: "gone", Absent: true, Kept: list[1].Kept}, list[0])

	require.NoError(t, j.Positions.Remove(t.Context(), "gone"))
	require.ErrorIs(t, j.Positions.Remove(t.Context(), "gone"), positions.ErrNoPosition)
	waiting.Until(t, func() bool { n, err := j.trimAll(t); return err == nil && n == 1 })
	assert.Zero(t, testutil.ToFloat64(j.metrics.doubts))
}

// A record acknowledged while the stream's state is asked for raises no doubt.
func TestPushesDuringATrimRaiseNoDoubt(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), testConfig)
	defer o.shut(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 500 {
			if !assert.NoError(t, o.Append(t.Context(), batchOf(relaytest.Events(1)))) {
				return
			}
		}
	}()
	for looks := 0; ; looks++ {
		_, err := o.delivered(t.Context())
		require.NoError(t, err, "look %d", looks)
		select {
		case <-ended:
			return
		default:
		}
	}
}

func TestNothingIsTrimmedBeforeAConfiguredSinkIsOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, err := streamserver.Connect(t.Context(), dir, testConfig, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	j, err := Open(t.Context(), conn, testConfig, Options{
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Sinks: []string{"k", "new"},
	})
	require.NoError(t, err)
	o := &opened{Journal: j, conn: conn}
	defer o.shut(t)
	k := o.source(t, "k")
	defer k.Close()
	o.push(t, relaytest.Events(3))
	read(t, k, 3, true)
	_, err = o.trimAll(t)
	require.ErrorIs(t, err, errUncertain)
	fresh := o.source(t, "new")
	defer fresh.Close()
	assert.Len(t, read(t, fresh, 3, true), 3)
	waiting.Until(t, func() bool { n, err := o.trimAll(t); return err == nil && n == 1 })
}

// The version before this one kept no register.
func TestTheSinksOfAnEarlierVersionAreKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	j.source(t, "behind").Close()
	k := j.source(t, "k")
	j.push(t, relaytest.Events(3))
	read(t, k, 3, true)
	k.Close()
	require.NoError(t, j.conn.JetStream.DeleteStream(t.Context(), "TEST_SINKS"))
	j.shut(t)

	j = open(t, dir, testConfig)
	defer j.shut(t)
	n, err := j.trimAll(t)
	require.NoError(t, err)
	assert.Zero(t, n, "behind has had nothing")
	list, err := j.Positions.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, []string{"behind", "k"}, []string{list[0].Sink, list[1].Sink})
}
