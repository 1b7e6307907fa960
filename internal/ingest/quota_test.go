package ingest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
)

// lines is a Loki push of n entries.
func lines(n int) string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf(`["%d","line %d"]`, time.Now().UnixNano(), i)
	}
	return `{"streams":[{"stream":{"a":"b"},"values":[` + strings.Join(values, ",") + `]}]}`
}

// pushLines pushes n entries, and returns the answer's status and Retry-After.
func (r *rig) pushLines(t *testing.T, n int) (code int, retryAfter string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.URL+"/loki/api/v1/push", strings.NewReader(lines(n)))
	require.NoError(t, err)
	req.SetBasicAuth("user", "correct horse")
	req.Header.Set("Content-Type", "application/json")
	res, err := r.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, res.Header.Get("Retry-After")
}

func TestAnEnvironmentIsHeldToItsRate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := start(t, func(o *Options) {
		o.Now = func() time.Time { return now }
		o.Quotas = map[credentials.Environment]config.Quota{testEnv: {EventsPerSecond: 10}}
	})
	code, _ := r.pushLines(t, 150)
	require.Equal(t, http.StatusNoContent, code, "100 are free, and a push is taken whole")
	code, retryAfter := r.pushLines(t, 1)
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Equal(t, "6", retryAfter, "a debt of 50, and the next event")
	now = now.Add(6 * time.Second)
	code, _ = r.pushLines(t, 1)
	assert.Equal(t, http.StatusNoContent, code)
	assert.Equal(t, 151, r.journal.taken())
	assert.Equal(t, 1.0, testutil.ToFloat64(r.handler.quotas.refused.WithLabelValues("acme", "live", "rate")))
}

// Repeated events cost as much to read as others, and count as much.
func TestRepeatedEventsCountInTheQuota(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := start(t, recently, func(o *Options) {
		o.Now = func() time.Time { return now }
		o.Quotas = map[credentials.Environment]config.Quota{testEnv: {EventsPerSecond: 10}}
	})
	body := lines(90)
	taken := 0
	for range 100 {
		switch got := r.push(t, body); got.status {
		case http.StatusNoContent:
			taken++
		default:
			require.Equal(t, http.StatusTooManyRequests, got.status)
		}
	}
	require.Equal(t, 2, taken, "100 are free, and a push is taken whole")
	require.Equal(t, 90, r.journal.taken())
}

// So do refused entries, and those before the place where a body cannot be decoded.
func TestRefusedEntriesCountInTheQuota(t *testing.T) {
	t.Parallel()
	bad := strings.Repeat(`["x","y"],`, 90)
	for name, body := range map[string]string{
		"all of them":     `{"streams":[{"stream":{"a":"b"},"values":[` + bad[:len(bad)-1] + `]}]}`,
		"the body is cut": lines(90)[:len(lines(90))-3],
		"all but one":     `{"streams":[{"stream":{"a":"b"},"values":[["1","x"],` + bad[:len(bad)-1] + `]}]}`,
	} {
		now := time.Now()
		r := start(t, func(o *Options) {
			o.Now = func() time.Time { return now }
			o.Quotas = map[credentials.Environment]config.Quota{testEnv: {EventsPerSecond: 10}}
		})
		statuses := map[int]int{}
		for range 20 {
			statuses[r.push(t, body).status]++
		}
		assert.Equal(t, map[int]int{http.StatusBadRequest: 2, http.StatusTooManyRequests: 18}, statuses, name)
	}
}

// A body that cannot be decoded has no events, and costs as many bytes as were looked at.
func TestWhatCannotBeDecodedCountsInTheQuota(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{
		"more than is allowed": gzipOf(t, make([]byte, 3<<20)),
		"malformed":            gzipOf(t, append([]byte(`{"message":"`), make([]byte, 1<<20)...)),
	} {
		now := time.Now()
		r := start(t, func(o *Options) {
			o.Now = func() time.Time { return now }
			o.Limits.DecompressedBytes = 2 << 20
			o.Quotas = map[credentials.Environment]config.Quota{testEnv: {BytesPerSecond: 100 << 10}}
		})
		statuses := map[bool]int{}
		for range 20 {
			got := r.send(t, http.MethodPost, "/api/v2/logs", asJSON.with("Content-Encoding", "gzip"), body)
			statuses[got.status == http.StatusTooManyRequests]++
		}
		assert.Equal(t, map[bool]int{false: 1, true: 19}, statuses, name)
	}
}

func TestAnEnvironmentWithoutRoomIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	t.Parallel()
	var asked []string
	full := true
	r := start(t, func(o *Options) {
		o.Quotas = map[credentials.Environment]config.Quota{testEnv: {UndeliveredBytes: 7 << 20}}
		o.Room = func(_ context.Context, source string, bytes, most int64) (func(), error) {
			asked = append(asked, fmt.Sprint(source, bytes > 0, most))
			if full {
				return nil, fmt.Errorf("%w: too much", journal.ErrShare)
			}
			return func() { asked = append(asked, "given back") }, nil
		}
	})
	code, retryAfter := r.pushLines(t, 1)
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Equal(t, "5", retryAfter)
	source := "/projects/acme/environments/live"
	require.Len(t, asked, 1)
	assert.Contains(t, asked[0], source)
	full, asked = false, nil
	code, _ = r.pushLines(t, 1)
	assert.Equal(t, http.StatusNoContent, code)
	require.Len(t, asked, 4)
	assert.Contains(t, asked[0], fmt.Sprint(false, 7<<20))
	assert.Contains(t, asked[2], fmt.Sprint(true, 7<<20))
	assert.Equal(t, "given back", asked[3])
	assert.Equal(t, 1.0, testutil.ToFloat64(r.handler.quotas.refused.WithLabelValues("acme", "live", "room")))
}

func TestABucketFillsUpToItsBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10, time.Now())
		b.take(300, time.Now())
		assert.Equal(t, 20100*time.Millisecond, b.wait(time.Now()))
		time.Sleep(20100 * time.Millisecond)
		assert.Zero(t, b.wait(time.Now()))
		time.Sleep(time.Hour)
		b.take(99, time.Now())
		assert.Zero(t, b.wait(time.Now()))
		b.take(1, time.Now())
		assert.Equal(t, 100*time.Millisecond, b.wait(time.Now()))
		assert.Zero(t, (&bucket{}).wait(time.Now()), "no rate, no bound")
	})
}
