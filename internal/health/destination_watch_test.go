package health

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// roundTrip answers requests without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWatch has two good looks, a failing hour, and a good end.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks, newest atomic.Int64
		var fails atomic.Bool
		newest.Store(time.Now().Add(-time.Hour).UnixNano())
		source := lokiAt(t, "http://loki.example.com")
		source.client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			looks.Add(1)
			if fails.Load() {
				return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody}, nil
			}
			body := `{"data":{"resultType":"streams","result":[{"values":[["` + strconv.FormatInt(newest.Load(), 10) + `",""]]}]}}`
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
		})
		var log bytes.Buffer
		page := received.New(time.Now).Of(credentials.Environment{Project: "acme", Environment: "live"})
		ctx, cancel := context.WithCancel(t.Context())
		go WatchDestinations(ctx, []Target{{page, source}}, slog.New(slog.NewTextHandler(&log, nil)))
		synctest.Wait()
		assert.Equal(t, newest.Load(), page.Snapshot().LastPush.UnixNano())
		assert.Equal(t, int64(1), page.Own().Pushes)
		time.Sleep(askInterval * 11 / 10)
		assert.Equal(t, int64(2), looks.Load())
		assert.Equal(t, int64(1), page.Own().Pushes, "it is the same event")
		newest.Store(time.Now().Add(24 * time.Hour).UnixNano())
		time.Sleep(askInterval * 11 / 10)
		good := page.Snapshot()
		assert.False(t, good.LastPush.After(good.Looked), "a sender's clock is not believed")
		fails.Store(true)
		looks.Store(0)
		time.Sleep(time.Hour)
		assert.Less(t, looks.Load(), int64(8), "pauses grow")
		assert.Equal(t, good.Looked, page.Snapshot().Looked)
		fails.Store(false)
		time.Sleep(longestAskPause * 11 / 10)
		assert.True(t, page.Snapshot().Looked.After(good.Looked))
		cancel()
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "known again"))
		assert.Contains(t, log.String(), "answered 502")
		assert.Less(t, strings.Count(log.String(), "\n"), 8)
	})
}
