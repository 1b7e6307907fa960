package witness

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
)

// post sends a body to a handler.
func post(h http.Handler, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body)))
	return w
}

func TestAnswersAsSpecified(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	other := l.Fork(0).Grow(40, "another")
	w := newWitness(t, l.Public)
	var logs bytes.Buffer
	reg := prometheus.NewRegistry()
	h := NewHandler(w, slog.New(slog.NewTextHandler(&logs, nil)), reg)

	good := post(h, request(l, 0, 20).Marshal())
	require.Equal(t, http.StatusOK, good.Code)
	assert.Regexp(t, "^— witness.example.com/w [A-Za-z0-9+/=]+\n$", good.Body.String())

	stale := post(h, request(l, 0, 40).Marshal())
	assert.Equal(t, http.StatusConflict, stale.Code)
	assert.Equal(t, "text/x.tlog.size", stale.Header().Get("Content-Type"))
	assert.Equal(t, "20\n", stale.Body.String())

	for range 3 {
		split := post(h, request(other, 20, 20).Marshal())
		assert.Equal(t, http.StatusConflict, split.Code)
		assert.NotEqual(t, "text/x.tlog.size", split.Header().Get("Content-Type"))
	}
	assert.Equal(t, 1, strings.Count(logs.String(), "level=ERROR"), "the evidence is logged once: %s", logs.String())
	assert.Contains(t, logs.String(), "example.com/log")

	assert.Equal(t, http.StatusBadRequest, post(h, []byte("old x\n\n")).Code)
	assert.Equal(t, http.StatusRequestEntityTooLarge, post(h, bytes.Repeat([]byte("a"), MaxRequest+1)).Code)
	get := httptest.NewRecorder()
	h.ServeHTTP(get, httptest.NewRequest(http.MethodGet, Path, nil))
	assert.Equal(t, http.StatusMethodNotAllowed, get.Code)
	get = httptest.NewRecorder()
	h.ServeHTTP(get, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusNotFound, get.Code)

	assert.InDelta(t, 20, testutil.ToFloat64(h.size.WithLabelValues("example.com/log")), 0)
	for result, want := range map[string]float64{"cosigned": 1, Stale: 1, Inconsistent: 3, Malformed: 2} {
		assert.InDelta(t, want, testutil.ToFloat64(h.requests.WithLabelValues(result)), 0, result)
	}
}

// A full disk is an answer to try again, an error in the log, and bad health; once.
func TestAFullDiskIsSaidOnce(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	w := newWitness(t, l.Public)
	onDisk := w.write
	w.write = func(states) error { return errors.New("no space left on device") }
	var logs bytes.Buffer
	h := NewHandler(w, slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry())
	for range 3 {
		assert.Equal(t, http.StatusServiceUnavailable, post(h, request(l, 0, 20).Marshal()).Code)
	}
	require.Error(t, h.Err())
	assert.Equal(t, 1, strings.Count(logs.String(), "level=ERROR"), logs.String())
	w.write = onDisk
	require.Equal(t, http.StatusOK, post(h, request(l, 0, 20).Marshal()).Code)
	require.NoError(t, h.Err())
	assert.Contains(t, logs.String(), "cosigned again")
}

// A client gone in the middle of its request gets no state changed.
func TestHalfARequestIsNone(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	w := newWitness(t, l.Public)
	h := NewHandler(w, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	body := request(l, 0, 20).Marshal()
	r := httptest.NewRequest(http.MethodPost, Path, io.MultiReader(bytes.NewReader(body), brokenReader{}))
	h.ServeHTTP(httptest.NewRecorder(), r)
	assert.Zero(t, w.sizeOf("example.com/log"))
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
