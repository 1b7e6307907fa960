package datadir

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWatermarkRisesOnly(t *testing.T) {
	t.Parallel()
	m, err := OpenWatermarks(t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	m.Raise("x", Watermark{8, 9})
	got, ok := m.Read("x")
	assert.True(t, ok)
	assert.Equal(t, Watermark{8, 9}, got)
	m.Raise("x", Watermark{6, 9})
	assert.EqualValues(t, 8, m.newest(), "only up")
	m.Raise("x", Watermark{6, 10})
	assert.EqualValues(t, 6, m.newest(), "except of another stream")
	require.NoError(t, m.Close())
}

// A failed write of a watermark loses nothing. It is reported once, and once more after a
// success between.
func TestWatermarksThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m, err := OpenWatermarks(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	failures := func() int { return strings.Count(log.String(), "level=WARN") }
	path := filepath.Join(m.dir, "x")
	for stretch := 1; stretch <= 2; stretch++ {
		require.NoError(t, m.Forget("x"))
		require.NoError(t, os.Mkdir(path, 0o700)) // no file can be opened there
		m.Raise("x", Watermark{Value: 1})
		m.Raise("x", Watermark{Value: 2})
		assert.Equal(t, stretch, failures(), "once for each stretch")
		assert.Contains(t, log.String(), "watermark=x")
		require.NoError(t, os.Remove(path))
		m.Raise("x", Watermark{Value: 3})
		got, ok := m.Read("x")
		require.True(t, ok)
		assert.EqualValues(t, 3, got.Value)
		assert.Equal(t, stretch, strings.Count(log.String(), "level=INFO"))
	}
	require.NoError(t, m.open["x"].file.Close())
	m.Raise("x", Watermark{Value: 4})
	assert.Equal(t, 3, failures(), "a write that fails is told as well")
	assert.EqualValues(t, 5, m.failures.Load())
}
