package journal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// growing is a source that checks what [relay.Source] promises: the position of each batch is
// greater than that of the batch before.
type growing struct {
	*testing.T
	relay.Source
	last  relay.Position
	count int
}

func (g *growing) Next(ctx context.Context) (relay.Batch, error) {
	b, err := g.Source.Next(ctx)
	if err == nil {
		require.Greater(g, b.Position, g.last, "batch %d", g.count)
		g.last = b.Position
		g.count++
	}
	return b, err
}

// Positions grow from batch to batch, whatever stands in the log: records that are given whole,
// several at once or in pieces, and those that are damaged. So they do in a span.
func TestPositionsGrow(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	large, total := storedBombs()["a thousand labels copied for each event"], 0
	for i := range 4 {
		for k := range 5 {
			j.push(t, relaytest.Events(1, relaytest.From(10*i+k)))
			total++
		}
		j.publish(t, []byte("damaged"))
		require.NoError(t, j.Append(t.Context(), large))
		total += large.Len()
	}
	for _, limit := range []relay.BatchLimit{{Events: 1, Bytes: 1 << 10}, {Events: 3, Bytes: 1 << 20}, {Events: 5000, Bytes: 16 << 20}} {
		s, err := j.Source(t.Context(), "k", limit)
		require.NoError(t, err)
		source := &growing{T: t, Source: s}
		for n := 0; n < total; {
			b, err := source.Next(t.Context())
			require.NoError(t, err)
			n += len(b.Events)
		}
		s.Close()
		span, err := j.set.Span(t.Context(), time.Time{}, time.Time{}, limit, nil)
		require.NoError(t, err)
		source = &growing{T: t, Source: span}
		for err == nil {
			_, err = source.Next(t.Context())
		}
		require.ErrorIs(t, err, ErrSpanEnd)
		require.EqualValues(t, total, span.Events)
	}
}
