package ingest

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The window of a zstd frame is not always in the header of the body: a frame of a single segment has
// its content's size instead, and frames before it may be smaller, or skipped.
func TestLargeWindowsOfZstd(t *testing.T) {
	t.Parallel()
	body := []byte("[" + strings.Repeat(`{"a":"`+strings.Repeat("x", 3000)+`"},`, 500) + `{"last":1}]`)
	skipped := []byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'h', 'i'}
	w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	require.NoError(t, err)
	large := zstdOf(t, body, zstd.WithWindowSize(2<<20))
	for name, sent := range map[string][]byte{
		"one segment":             w.EncodeAll(body, nil),
		"after a skippable frame": slices.Concat(skipped, large),
		"after a small frame":     slices.Concat(zstdOf(t, []byte(" \n")), large),
	} {
		r := start(t)
		got := r.send(t, http.MethodPost, "/api/v2/logs", asJSON.with("Content-Encoding", "zstd"), sent)
		assert.Equal(t, http.StatusAccepted, got.status, "%s: %s", name, got.body)
		assert.Equal(t, 501, r.journal.taken(), name)
		assert.Zero(t, r.handler.memory.used.Load(), name)
	}
}

// What follows the end of a stream must not be acknowledged, since nobody has read it.
func TestBytesAfterTheEndOfABody(t *testing.T) {
	t.Parallel()
	var raw bytes.Buffer
	w, err := flate.NewWriter(&raw, flate.DefaultCompression)
	require.NoError(t, err)
	_, err = w.Write([]byte(`{"a":1}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	r := start(t)
	for name, sent := range map[string]struct {
		encoding string
		body     []byte
	}{
		"zlib": {"deflate", zlibOf(t, []byte(`{"a":1}`))}, "deflate": {"deflate", raw.Bytes()},
		"gzip": {"gzip", gzipOf(t, []byte(`{"a":1}`))}, "zstd": {"zstd", zstdOf(t, []byte(`{"a":1}`))},
	} {
		as := asJSON.with("Content-Encoding", sent.encoding)
		assert.Equal(t, http.StatusAccepted, r.send(t, http.MethodPost, "/api/v2/logs", as, sent.body).status, name)
		for range 2 { // the second time with a decompressor that was used before
			got := r.send(t, http.MethodPost, "/api/v2/logs", as, append(bytes.Clone(sent.body), "and more"...))
			assert.Equal(t, http.StatusBadRequest, got.status, "%s: %s", name, got.body)
		}
	}
	assert.Equal(t, 4, r.journal.taken())
}
