package routing

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestDoubtsAreDeliveredCountedAndLoggedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		metrics, err := NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		r, err := New(&config.Match{CEL: `body.missing == 1`}, nil,
			Options{Sink: "s", Logger: slog.New(slog.NewTextHandler(&logged, nil)), Metrics: metrics})
		require.NoError(t, err)
		var inner relaytest.Sink
		sink := r.Wrap(&inner)
		for range 3 {
			require.NoError(t, sink.Deliver(t.Context(), numbered(100)))
		}
		assert.Len(t, inner.Arrived(), 300)
		assert.Equal(t, 1, strings.Count(logged.String(), "\n"), logged.String())
		assert.Contains(t, logged.String(), "column 5: there is no such key; test for it with has()")
		assert.Contains(t, logged.String(), "event=e0")
		assert.InDelta(t, 300, testutil.ToFloat64(metrics.doubtful.WithLabelValues("s")), 0)
		time.Sleep(quiet)
		require.NoError(t, sink.Deliver(t.Context(), numbered(100)))
		assert.Equal(t, 2, strings.Count(logged.String(), "\n"))
	})
}

func TestChoosingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := route(t, &config.Match{CEL: `id == "nobody"`}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		latest := half(ctx)
		assert.Equal(t, 10*time.Second, time.Until(latest))
		c := chooser{Route: r, view: &view{}, latest: latest}
		require.ErrorIs(t, c.chosen(&numbered(1)[0]), errUnmatched)
		time.Sleep(10 * time.Second)
		require.NoError(t, c.chosen(&numbered(1)[0]), "what there is no time to look at is delivered")
		r.strict = true
		require.ErrorIs(t, c.chosen(&numbered(1)[0]), errTime)
		require.False(t, relay.IsPermanent(c.chosen(&numbered(1)[0])), "or tried again")
		c.latest = time.Time{}
		require.ErrorIs(t, c.chosen(&numbered(1)[0]), errUnmatched)
		assert.Equal(t, 2, c.unmatched)
		assert.Equal(t, 1, c.doubtful)
		cancel()
		var inner relaytest.Sink
		require.ErrorIs(t, r.Wrap(&inner).Deliver(ctx, numbered(1)), context.Canceled)
		assert.Empty(t, inner.Calls())
	})
}

// With on_error: withhold, events go to the dead letters if the expression fails.
func TestDoubtsAreWithheld(t *testing.T) {
	t.Parallel()
	r := route(t, &config.Match{CEL: `body.n > 1`, OnError: "withhold"}, nil)
	events := numbered(4)
	events[0].Body = []byte(`{"email":"a0@example.com"}`)
	var inner relaytest.Sink
	err := r.Wrap(&inner).Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 1)
	assert.Equal(t, 0, partial.Failures[0].Index)
	assert.True(t, relay.IsPermanent(partial.Failures[0].Err))
	require.EqualError(t, partial.Failures[0].Err, "match.cel fails for it, and so it is withheld: column 5: there is no such key; test for it with has()")
	assert.Equal(t, "e2 e3", ids(inner.Arrived()))
	assert.InDelta(t, 1, testutil.ToFloat64(r.counts.withheld), 0)
	assert.InDelta(t, 1, testutil.ToFloat64(r.counts.doubtful), 0)
}
