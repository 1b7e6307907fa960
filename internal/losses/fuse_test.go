package losses

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

func TestTheFuseBlows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damaged, readable uint64
		held              bool
	}{
		"one of few":          {1, 3, false},
		"three of few":        {3, 96, false},
		"one in a hundred":    {1, 99, false},
		"two in a hundred":    {2, 98, true},
		"one per cent":        {2, 198, false},
		"ten of many":         {10, 100_000, false},
		"eleven of many":      {11, 100_000, true},
		"nothing is readable": {30_850, 0, true},
	} {
		f := newFuse(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		f.note(datadir.Span{From: 101, To: 100 + c.damaged}, c.readable)
		assert.Equal(t, c.held, f.state().Held, name)
		assert.Equal(t, c.held, testutil.ToFloat64(f.blown) == 1, name)
		assert.Equal(t, c.held, f.holds(datadir.Span{From: 50, To: 101}), name)
		assert.False(t, f.holds(datadir.Span{From: 1, To: 100}), "%s: what lies before it is given", name)
		f.accept(100 + c.damaged)
		assert.False(t, f.holds(datadir.Span{From: 50, To: 101}), name)
		f.note(datadir.Span{From: 50, To: 60}, c.readable)
		assert.False(t, f.state().Held, "%s: older damage is accepted too", name)
	}
}
