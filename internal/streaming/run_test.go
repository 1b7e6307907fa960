package streaming

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
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
