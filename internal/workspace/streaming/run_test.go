package streaming

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestRunGoesOnThroughFailures(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.failRead = 500
	var logs lockedBuffer
	r, _ := g.start(func(o *Options) {
		o.Interval = 2 * time.Millisecond
		o.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	}, toRelay, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	is := func(cond func(Health) bool) {
		t.Helper()
		waiting.Until(t, func() bool { return cond(r.Health()[0]) })
	}
	is(func(h Health) bool { return h.LastError != "" })
	looks := func(result string) float64 {
		return testutil.ToFloat64(r.watchers[0].metrics.looks.WithLabelValues(result))
	}
	waiting.Until(t, func() bool { return looks("error") > 5 })
	g.api.set(func() { g.api.failRead = 0 })
	is(Health.OK)
	g.api.set(func() { g.api.status = "DISABLED" })
	is(func(h Health) bool { return h.Finding == FindingNotActive })
	stop()
	<-done
	assert.Equal(t, 2, bytes.Count(logs.b.Bytes(), []byte("look at the streaming config failed")), "logged once by environment")
	assert.Len(t, r.Health(), 2, "an environment without a stream is observed")
}

// cutOff is the trail of a relay that is cut off from its journal, until it is not.
type cutOff struct {
	*trail
	over atomic.Bool
}

func (c *cutOff) Last(ctx context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	if !c.over.Load() {
		return audit.Entry{}, false, context.DeadlineExceeded
	}
	return c.trail.Last(ctx, project, environment, subject)
}

// A relay that is cut off from its journal tells of no failure of the API.
func TestALookWithoutTheTrailIsNoErrorOfTheAPI(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var logs lockedBuffer
	cut := &cutOff{trail: g.trail}
	r, _ := g.start(func(o *Options) {
		o.Interval, o.Recorder = 2*time.Millisecond, cut
		o.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	}, toRelay)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	waiting.Until(t, func() bool { return testutil.ToFloat64(r.watchers[0].metrics.looks.WithLabelValues("error")) > 5 })
	cut.over.Store(true)
	waiting.Until(t, func() bool { return r.Health()[0].OK() })
	stop()
	<-done
	text := logs.b.String() // nobody writes any more
	assert.Equal(t, 1, strings.Count(text, `level=WARN msg="a look at the streaming config could not use the audit trail; the next looks try again"`), text)
	assert.NotContains(t, text, "level=ERROR")
}

func TestOneEnvironmentDoesNotStopAnother(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay, toRelay)
	r.watchers[0].turn <- struct{}{} // a look that never ends
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	waiting.Until(t, func() bool { return !r.Health()[1].LastLook.IsZero() })
	assert.True(t, r.Health()[0].LastLook.IsZero())
	stop()
	<-done
}

// Every series of every configured environment exists before the first look.
func TestEverySeriesFromTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := newRig(t)
	g.start(func(o *Options) { o.Registerer = registry }, toRelay, nil)
	all, err := registry.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, f := range all {
		series[strings.TrimPrefix(f.GetName(), "auditrelay_streaming_")] = len(f.GetMetric())
	}
	assert.Equal(t, map[string]int{
		"looks_total": 2, "puts_total": 2, "changes_total": 10, "unread_changes_total": 1,
		"declared_active": 2, "as_desired": 2, "last_look_timestamp_seconds": 2, "fight": 2,
	}, series)
}

// A program reads the health as /status shows it.
func TestHealthInJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(Health{Project: "p", LastLook: time.Unix(1, 0).UTC(), Finding: FindingDiffers, Fight: &Fight{Undone: 3}})
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"project": "p", "environment": "", "mode": "", "observed": false, "status": "", "destination_type": "", "destination": "",
		"finding": "differs", "fight": {"undone": 3, "since": "0001-01-01T00:00:00Z"}, "last_look": "1970-01-01T00:00:01Z"
	}`, string(raw))
}
