package journal

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The server had written that the sink has 10 of the 30 records.
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
			require.NoError(t, w.marks.forget(consumerPrefix+"k"))
			w.mark(t, consumerPrefix+"k", noted{c.value, made + c.stream})

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

// A mark that the stream does not reach keeps its positions from being given out
// again: else the sink would never get what stands there.
func TestAMarkBeyondTheStream(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	j := open(t, w.dir, w.cfg)
	made := j.made
	j.shut(t)
	w.mark(t, consumerPrefix+"k", noted{50, made})
	j = open(t, w.dir, w.cfg)
	defer j.shut(t)
	s := j.source(t, "k")
	j.push(t, relaytest.Events(1, relaytest.From(1000)))
	assert.Equal(t, ids(relaytest.Events(1, relaytest.From(1000))), ids(read(t, s, 1, true)))
	usage, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 31, usage.Records)
	q, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, []uint64{31, 50}, []uint64{q[0].From, q[0].To}, "what was lost is named")
}

// A sink that was retired and comes back starts anew.
func TestARemovedPositionLeavesNoMark(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 10)
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	require.NoError(t, j.RemovePosition(t.Context(), "k"))
	assert.Equal(t, w.holds[1], ids(read(t, j.source(t, "k"), 3, true))[:3])
}

func TestMarksOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	m, err := openMarks(t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var data [oldNotedSize]byte
	binary.LittleEndian.PutUint64(data[:], 7)
	binary.LittleEndian.PutUint64(data[8:], xxhash.Sum64(data[:8]))
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "x"), data[:], 0o600))
	got, ok := m.read("x")
	assert.True(t, ok)
	assert.Equal(t, noted{value: 7}, got)
	m.raise("x", noted{8, 9})
	got, ok = m.read("x")
	assert.True(t, ok)
	assert.Equal(t, noted{8, 9}, got)
	m.raise("x", noted{6, 9})
	assert.EqualValues(t, 8, m.newest(), "only up")
	m.raise("x", noted{6, 10})
	assert.EqualValues(t, 6, m.newest(), "but for another stream")
	require.NoError(t, m.close())
}

// A mark that cannot be written loses nothing and is told: once, and once more
// after it could be written between.
func TestMarksThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m, err := openMarks(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	failures := func() int { return strings.Count(log.String(), "level=WARN") }
	path := filepath.Join(m.dir, "x")
	for stretch := 1; stretch <= 2; stretch++ {
		require.NoError(t, m.forget("x"))
		require.NoError(t, os.Mkdir(path, 0o700)) // no file can be opened there
		m.raise("x", noted{value: 1})
		m.raise("x", noted{value: 2})
		assert.Equal(t, stretch, failures(), "once for each stretch")
		assert.Contains(t, log.String(), "mark=x")
		require.NoError(t, os.Remove(path))
		m.raise("x", noted{value: 3})
		got, ok := m.read("x")
		require.True(t, ok)
		assert.EqualValues(t, 3, got.value)
		assert.Equal(t, stretch, strings.Count(log.String(), "level=INFO"))
	}
	require.NoError(t, m.open["x"].file.Close())
	m.raise("x", noted{value: 4})
	assert.Equal(t, 3, failures(), "a write that fails is told as well")
	assert.EqualValues(t, 5, m.failures.Load())
}

func (w *wreck) mark(t *testing.T, name string, n noted) {
	t.Helper()
	m, err := openMarks(w.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	m.raise(name, n)
	require.NoError(t, m.close())
}
