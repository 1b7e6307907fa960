package ingest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal"
)

// TestRefusalsAreTheEnvironmentsOwn holds each reason against the book of arrivals.
func TestRefusalsAreTheEnvironmentsOwn(t *testing.T) {
	t.Parallel()
	fails := func(err error) func(*Options) {
		return func(o *Options) { o.Journal = &fakeJournal{err: err} }
	}
	full := func(context.Context, string, int64, int64) (func(), error) { return nil, journal.ErrShare }
	for reason, change := range map[string]func(*Options){
		received.Budget:      func(o *Options) { o.Room = full },
		received.Unavailable: fails(errors.New("down")),
		received.TooLarge:    func(o *Options) { o.Limits.BodyBytes = 8 },
		received.Busy:        func(o *Options) { o.Limits.InFlightBytes = headBytes; o.Limits.BodyBytes = headBytes },
		received.Form:        func(o *Options) { o.Limits.LineBytes = 1 },
		received.Quota: func(o *Options) {
			o.Quotas = map[credentials.Environment]config.Quota{testEnv: {EventsPerSecond: .01}}
		},
	} {
		r := start(t, change)
		body := `{"streams":[{"values":[["1","xx"]]}]}`
		if reason == received.Busy {
			r.handler.memory.used.Add(headBytes)
		}
		if reason == received.Quota {
			require.Equal(t, http.StatusNoContent, r.push(t, body).status)
		}
		require.GreaterOrEqual(t, r.push(t, body).status, 400, reason)
		assert.Equal(t, map[string]int64{reason: 1}, counted(r.arrived()), reason)
	}
	r := start(t, fails(journal.ErrFull))
	require.Equal(t, http.StatusServiceUnavailable, r.push(t, good).status)
	assert.Equal(t, map[string]int64{received.Budget: 1}, counted(r.arrived()))
	r = start(t)
	require.Equal(t, http.StatusUnauthorized, r.send(t, "POST", "/loki/api/v1/push", asJSON.with("Authorization", ""), []byte(good)).status)
	r.handler.arrivals.Each(func(e *received.Environment) { t.Errorf("nobody knows whose push it was, not %s", e.Name()) })
}

// A push without anything in it, such as the trial of a connection, is refused, and nothing is lost by it.
func TestAnEmptyPushIsNoLoss(t *testing.T) {
	t.Parallel()
	r := start(t)
	for path, bodies := range map[string][]string{
		"/loki/api/v1/push": {`{}`, `{"streams":[]}`, `{"streams":null}`}, "/api/v2/logs": {"", " \n"},
	} {
		for _, body := range bodies {
			assert.GreaterOrEqual(t, r.send(t, http.MethodPost, path, asJSON, []byte(body)).status, 400, body)
		}
	}
	assert.Empty(t, counted(r.arrived()))
	got := r.push(t, `{"resourceLogs":[{}]}`)
	assert.Equal(t, http.StatusUnprocessableEntity, got.status)
	assert.Equal(t, "the push has no streams, and other members in their place\n", got.body)
	assert.Equal(t, map[string]int64{received.Form: 1}, counted(r.arrived()))
}

func counted(s received.Snapshot) map[string]int64 {
	counts := map[string]int64{}
	for reason, r := range s.Refusals {
		if r.Count > 0 {
			counts[reason] = r.Count
		}
	}
	return counts
}

// TestWrongCredentialIsToldBeforeItsAnswer pushes with known and unknown user names.
func TestWrongCredentialIsToldBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuessed(t)
		defer synctest.Wait()
		defer func() { require.NoError(t, g.server.Close()) }()
		var told time.Time
		g.h.arrivals.OnRefused(func(env credentials.Environment) {
			assert.Equal(t, testEnv, env)
			told = time.Now()
		})
		g.push("192.0.2.1", "nobody", "x")
		assert.True(t, told.IsZero())
		began := time.Now()
		status, took := g.push("192.0.2.1", "user", "x")
		assert.Equal(t, http.StatusUnauthorized, status)
		assert.Equal(t, began, told, "the answer took %s", took)
		assert.Greater(t, took, firstDelay)
		s := g.h.arrivals.Of(testEnv).Snapshot()
		assert.Equal(t, map[string]int64{received.Credential: 1}, counted(s))
		assert.True(t, s.LastPush.IsZero())
	})
}

// TestLatenessIsOfNewEvents pushes an event twice, and one without a time of its own.
func TestLatenessIsOfNewEvents(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_760_000_000, 0)
	r := start(t, recently, func(o *Options) { o.Now = func() time.Time { return now } })
	at := strconv.FormatInt(now.Add(-time.Minute).UnixNano(), 10)
	require.Equal(t, http.StatusNoContent, r.push(t, `{"streams":[{"values":[["`+at+`","x"]]}]}`).status)
	assert.InEpsilon(t, 60, r.arrived().Lateness[0], .125)
	now = now.Add(time.Hour)
	require.Equal(t, http.StatusNoContent, r.push(t, `{"streams":[{"values":[["`+at+`","x"]]}]}`).status)
	require.Equal(t, http.StatusAccepted, r.send(t, "POST", "/api/v2/logs", asJSON, []byte(`[{"message":"y"}]`)).status)
	s := r.arrived()
	assert.NotEqual(t, s.Lateness[0], s.Lateness[0], "NaN: no new event had a time")
	assert.Equal(t, received.Totals{Pushes: 3, Events: 2, Duplicates: 1, Bytes: 16}, s.Totals)
}
