package witness

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
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
		assert.Equal(t, http.StatusUnprocessableEntity, split.Code)
	}
	assert.Equal(t, 1, strings.Count(logs.String(), "level=ERROR"), "the evidence is logged once: %s", logs.String())
	assert.Equal(t, 2, strings.Count(logs.String(), `— example.com/log `), "with both signed checkpoints: %s", logs.String())

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

// A full disk is answered with the request to try again, and makes one error in the log and bad
// health.
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

// If a client goes away in the middle of its request, no state changes.
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

// Monitors read the newest cosigned checkpoint, with the log's signature and the witness's.
func TestServesTheCosignedCheckpoint(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	never := testlog.New(t, "example.com/never", 3, "entry")
	w := newWitness(t, l.Public, never.Public)
	h := NewHandler(w, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	get := func(path string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer
	}
	of := func(origin string) string { return fmt.Sprintf("/%x/checkpoint", sha256.Sum256([]byte(origin))) }
	require.Equal(t, http.StatusNotFound, get(of("example.com/log")).Code)
	for _, step := range [][2]int64{{0, 20}, {20, 20}, {20, 30}} {
		r := request(l, step[0], step[1])
		r.Checkpoint = append(r.Checkpoint, "— stranger.example.com AAAAAAAA\n"...)
		line := post(h, r.Marshal())
		require.Equal(t, http.StatusOK, line.Code, line.Body.String())
		answer := get(of("example.com/log"))
		require.Equal(t, http.StatusOK, answer.Code)
		assert.Equal(t, string(l.At(step[1]))+line.Body.String(), answer.Body.String())
	}
	for _, path := range []string{of("example.com/never"), of("example.com/unknown"), strings.ToUpper(of("example.com/log")), "/checkpoint", "/x/checkpoint"} {
		assert.Equal(t, http.StatusNotFound, get(path).Code, path)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, post2(h, of("example.com/log")).Code)
}

func post2(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
	return w
}

// Whoever sends an honest log's checkpoint with a rubbish proof, or an old one, makes the
// witness accuse nobody. Only two signatures of one size do.
func TestOnlySignaturesAccuse(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	later := l.Generation("example.com/log/from-40").Grow(3, "later")
	w := newWitness(t, l.Public, later.Public)
	var logs bytes.Buffer
	h := NewHandler(w, slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry())
	require.Equal(t, http.StatusOK, post(h, request(l, 0, 20).Marshal()).Code)
	rubbish := request(l, 20, 40)
	rubbish.Proof[0][3] ^= 1
	assert.Equal(t, http.StatusUnprocessableEntity, post(h, rubbish.Marshal()).Code)
	require.Equal(t, http.StatusOK, post(h, request(later, 0, 3).Marshal()).Code)
	assert.Equal(t, http.StatusForbidden, post(h, request(l, 20, 30).Marshal()).Code)
	assert.NotContains(t, logs.String(), "evidence")
	assert.NotContains(t, logs.String(), "level=ERROR")
	assert.Equal(t, 2, strings.Count(logs.String(), "accuses nobody"), logs.String())
}

// The holder of a watched log's key cannot fill the witness's memory or log: with generations
// of any name, with long checkpoints, with strangers' signatures, or in turns with good ones.
func TestAKeyHolderFillsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := testlog.New(t, "example.com/log", 400, "entry")
		fork := l.Fork(0).Grow(400, "another")
		w := newWitness(t, l.Public)
		var logs bytes.Buffer
		h := NewHandler(w, slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry())
		require.Equal(t, http.StatusOK, post(h, request(l, 0, 1).Marshal()).Code)
		for i := range int64(100) {
			offered := l.Generation(fmt.Sprintf("example.com/log/from-%d%s", i, strings.Repeat("0", 1000))).Grow(1, "later")
			assert.Equal(t, http.StatusNotFound, post(h, request(offered, 0, 1).Marshal()).Code)
			split := request(fork, i+1, i+1)
			split.Checkpoint = append(split.Checkpoint, "— stranger.example.com "+strings.Repeat("AAAA", 10_000)+"\n"...)
			assert.Equal(t, http.StatusUnprocessableEntity, post(h, split.Marshal()).Code)
			require.Equal(t, http.StatusOK, post(h, request(l, i+1, i+2).Marshal()).Code)
		}
		long := l.Sign(proof.Checkpoint{Origin: l.Origin(), Size: 102, Root: l.Root(102), Extensions: []string{strings.Repeat("x", 40_000)}})
		assert.Equal(t, http.StatusBadRequest, post(h, Request{Old: 101, Proof: l.Prove(101, 102), Checkpoint: long}.Marshal()).Code)
		assert.Less(t, logs.Len(), 10<<10, logs.String())
		assert.LessOrEqual(t, len(h.told), 3)
		state, err := os.ReadFile(w.file)
		require.NoError(t, err)
		assert.Less(t, len(state), 4<<10)
		busy := 0
		for n := int64(101); n < 399 && busy == 0; n++ {
			if answer := post(h, request(l, n, n+1).Marshal()); answer.Code != http.StatusOK {
				require.Equal(t, http.StatusTooManyRequests, answer.Code)
				assert.NotEmpty(t, answer.Header().Get("Retry-After"))
				busy++
			}
		}
		require.Equal(t, 1, busy, "the state is written so often and no more")
		size := w.sizeOf("example.com/log")
		assert.Equal(t, http.StatusOK, post(h, request(l, size, size).Marshal()).Code, "what changes no state is signed")
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusOK, post(h, request(l, size, size+1).Marshal()).Code)
		before := logs.Len()
		time.Sleep(time.Hour)
		require.Equal(t, http.StatusUnprocessableEntity, post(h, request(fork, size+1, size+1).Marshal()).Code)
		assert.Contains(t, logs.String()[before:], "refused_since_the_last_line=99")
	})
}

// A line in the name of a trusted key that is not its signature makes the note malformed,
// wherever it stands.
func TestALineThatFailsToVerify(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	w := newWitness(t, l.Public)
	good := l.At(20)
	line := good[bytes.LastIndex(good, []byte("\n\n"))+2:]
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(line[len("— example.com/log "):])))
	require.NoError(t, err)
	sig[20] ^= 1
	bad := []byte("— example.com/log " + base64.StdEncoding.EncodeToString(sig) + "\n")
	text := good[:len(good)-len(line)]
	for name, lines := range map[string][][]byte{"after": {text, line, bad}, "before": {text, bad, line}, "alone": {text, bad}} {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, w, Request{Checkpoint: bytes.Join(lines, nil)}, Untrusted, http.StatusForbidden)
		})
	}
	requireCosigned(t, w, Request{Checkpoint: bytes.Join([][]byte{text, line, line}, nil)})
}
