package relay_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	plain := errors.New("it failed")
	for _, c := range []struct {
		want relay.Class
		err  error
	}{
		{relay.ClassTimeout, fmt.Errorf("deliver: %w", context.DeadlineExceeded)},
		{relay.ClassTimeout, &net.OpError{Op: "read", Err: timeout{}}},
		{relay.ClassConnection, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
		{relay.ClassConnection, &net.DNSError{Name: "loki.example", IsNotFound: true}},
		{relay.ClassConnection, fmt.Errorf("handshake: %w", x509.UnknownAuthorityError{})},
		{relay.ClassConnection, io.ErrUnexpectedEOF},
		{relay.ClassAuthentication, relay.WithClass(plain, relay.StatusClass(401))},
		{relay.ClassAuthentication, relay.WithClass(plain, relay.StatusClass(403))},
		{relay.ClassAuthentication, relay.RetryAfter(relay.WithClass(plain, relay.ClassAuthentication), time.Second)},
		{relay.ClassRefused, relay.Permanent(plain)},
		{relay.ClassRefused, relay.WithClass(plain, relay.StatusClass(404))},
		{relay.ClassRefused, &relay.PartialError{Failures: []relay.Failure{{Index: 1, Err: relay.Permanent(plain)}}}},
		{relay.ClassThrottled, relay.RetryAfter(plain, time.Second)},
		{relay.ClassThrottled, relay.WithClass(plain, relay.StatusClass(429))},
		{relay.ClassTimeout, relay.WithClass(plain, relay.StatusClass(504))},
		{relay.ClassOther, relay.WithClass(plain, relay.StatusClass(500))},
		{relay.ClassOther, relay.WithClass(plain, "of my own")},
		{relay.ClassOther, plain},
		{relay.ClassThrottled, relay.RetryAfter(relay.WithClass(plain, relay.StatusClass(503)), time.Second)},
	} {
		assert.Equal(t, c.want, relay.ClassOf(c.err), "%T %v", c.err, c.err)
		assert.Contains(t, relay.Classes(), relay.ClassOf(c.err))
	}
}

type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// An alert on a sink that has never delivered finds its series.
func TestASinksSeriesExistBeforeItsFirstDelivery(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := relay.NewMetrics(reg)
	m.Begin("never")
	m.Begin("never")
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			assert.Equal(t, "never", series.GetLabel()[len(series.GetLabel())-1].GetValue(), f.GetName())
			values[f.GetName()] += series.GetGauge().GetValue() + series.GetCounter().GetValue()
		}
	}
	for _, name := range []string{"delivered_events_total", "attempts_total", "failures_total", "rejected_events_total", "failing", "last_error", "delivery_seconds"} {
		assert.Contains(t, values, "auditrelay_sink_"+name)
		assert.Zero(t, values["auditrelay_sink_"+name])
	}
	for _, name := range []string{"last_success", "failing_since", "last_delivered_received"} {
		name = "auditrelay_sink_" + name + "_timestamp_seconds"
		assert.Contains(t, values, name)
		assert.NotEqual(t, values[name], values[name], "%s is NaN", name)
	}
	assert.Equal(t, len(relay.Classes()), testutil.CollectAndCount(reg, "auditrelay_sink_last_error"))
}

func TestMetricsTellAFailureAndItsEnd(t *testing.T) {
	refusal := relay.WithClass(errors.New("401"), relay.ClassAuthentication)
	respond := func(n int, _ []relay.Event) relaytest.Outcome {
		if n < 5 {
			return relaytest.Outcome{Err: refusal}
		}
		return relaytest.Outcome{}
	}
	pumping(t, respond, [][]relay.Event{relaytest.Events(3)}, func(t *testing.T, p *pumped) {
		begun := time.Now()
		time.Sleep(200 * time.Millisecond)
		assert.Empty(t, compare(p.reg, "auditrelay_sink_failing_since_timestamp_seconds", `{sink="test"}`, float64(begun.UnixMilli())/1e3))
		assert.Empty(t, compare(p.reg, "auditrelay_sink_last_error", `{class="authentication",sink="test"}`, 1))
		time.Sleep(time.Minute)
		assert.Empty(t, compare(p.reg, "auditrelay_sink_failing", `{sink="test"}`, 0))
		assert.NotEmpty(t, compare(p.reg, "auditrelay_sink_failing_since_timestamp_seconds", `{sink="test"}`, float64(begun.UnixMilli())/1e3))
		assert.Empty(t, compare(p.reg, "auditrelay_sink_last_error", `{class="authentication",sink="test"}`, 1))
		assert.Empty(t, compare(p.reg, "auditrelay_sink_delivered_events_total", `{sink="test"}`, 3))
	})
}

// compare returns an error if a series does not have the value; with an empty value it only has
// to exist.
func compare(reg *prometheus.Registry, name, labels string, want float64) string {
	families, err := reg.Gather()
	if err != nil {
		return err.Error()
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			var text []string
			for _, l := range series.GetLabel() {
				text = append(text, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if f.GetName() != name || labels != "{"+strings.Join(text, ",")+"}" {
				continue
			}
			if got := series.GetGauge().GetValue() + series.GetCounter().GetValue(); got != want {
				return fmt.Sprintf("%s%s is %v", name, labels, got)
			}
			return ""
		}
	}
	return "no such series"
}
