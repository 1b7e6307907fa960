package journal

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The server had written the sink's position: 10 of the 30 records.
func TestASinkGoesOnFromItsMark(t *testing.T) {
	t.Parallel()
	sound := newWreck(t, 30, 10)
	for _, c := range []struct {
		name   string
		value  uint64
		stream int64 // added to the stream's own
		from   uint64
	}{
		{"it had acknowledged more", 20, 0, 21},
		{"it had acknowledged all", 30, 0, 31},
		{"the mark is older, as after a power loss", 5, 0, 6},
		{"the mark is of another stream", 20, 1, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := sound.copied(t)
			j := open(t, w.dir, w.cfg)
			made := j.made
			j.shut(t)
			require.NoError(t, w.marks.Forget(consumerPrefix+"k"))
			w.mark(t, consumerPrefix+"k", datadir.Watermark{Value: c.value, Stream: made + c.stream})

			j = open(t, w.dir, w.cfg)
			defer j.shut(t)
			j.push(t, relaytest.Events(1, relaytest.From(1000))) // record 31, or behind the mark
			var want []string
			for seq := c.from; seq <= 30; seq++ {
				want = append(want, w.holds[seq]...)
			}
			want = append(want, ids(relaytest.Events(1, relaytest.From(1000)))...)
			assert.Equal(t, want, ids(read(t, j.source(t, "k"), len(want), true)))
			waiting.Until(t, func() bool {
				at, err := j.delivered(t.Context())
				return err == nil && at == 31
			}, "and its position follows")
		})
	}
}

// A watermark beyond the stream keeps its positions from being given out again: else the
// sink would never get the records there.
func TestAMarkBeyondTheStream(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	j := open(t, w.dir, w.cfg)
	made := j.made
	j.shut(t)
	w.mark(t, consumerPrefix+"k", datadir.Watermark{Value: 50, Stream: made})
	j = open(t, w.dir, w.cfg)
	defer j.shut(t)
	s := j.source(t, "k")
	j.push(t, relaytest.Events(1, relaytest.From(1000)))
	assert.Equal(t, ids(relaytest.Events(1, relaytest.From(1000))), ids(read(t, s, 1, true)))
	usage, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 31, usage.Records)
	q, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, []uint64{31, 50}, []uint64{q[0].From, q[0].To}, "what was lost is named")
}

// A retired sink starts anew when it comes back.
func TestARemovedPositionLeavesNoMark(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	require.NoError(t, j.Positions.Remove(t.Context(), "k"))
	assert.Equal(t, w.holds[1], ids(read(t, j.source(t, "k"), 3, true))[:3])
}

func (w *wreck) mark(t *testing.T, name string, n datadir.Watermark) {
	t.Helper()
	m, err := datadir.OpenWatermarks(w.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	m.Raise(name, n)
	require.NoError(t, m.Close())
}
