package management

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

type metrics struct {
	requests *prometheus.CounterVec   // by operation and code
	retries  *prometheus.CounterVec   // by operation
	seconds  *prometheus.HistogramVec // by operation, one attempt each
}

// newMetrics registers with r, unless r is nil.
func newMetrics(r prometheus.Registerer, b *breaker, q *queue) *metrics {
	const space, room = "auditrelay", "management"
	register := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Namespace: space, Subsystem: room, Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("requests_total", "Attempts at calls of the management API, by operation and HTTP status (error: no answer).", "operation", "code"),
		retries:  counter("retries_total", "Attempts after a failed one of the same call.", "operation"),
		seconds: register.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: space, Subsystem: room, Name: "request_duration_seconds",
			Help:    "How long one attempt took, its answer read.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 10),
		}, []string{"operation"}),
	}
	for _, operation := range operations() {
		m.retries.WithLabelValues(operation)
		m.seconds.WithLabelValues(operation)
		for _, code := range []string{"200", "401", "403", "404", "429", "500", codeNone} {
			m.requests.WithLabelValues(operation, code)
		}
	}
	gauge := func(name, help string, value func() float64) {
		register.NewGaugeFunc(prometheus.GaugeOpts{Namespace: space, Subsystem: "workspace", Name: name, Help: help}, value)
	}
	gauge("reachable",
		"1 where the management API can be used, 0 where it refuses the key, gives no answer, or asked to wait for long; NaN before the first call.", b.reachable)
	gauge("failing_since_timestamp_seconds", "Since when the management API cannot be used; NaN while it can.", b.failingSince)
	gauge("held_until_timestamp_seconds",
		"Until when no request is sent, as the management API asked this caller to wait (429 with Retry-After); NaN while it does not.", func() float64 {
			held := q.heldUntil()
			if !held.After(time.Now()) {
				return math.NaN()
			}
			return float64(held.UnixMilli()) / 1000
		})
	return m
}

func (b *breaker) reachable() float64 {
	switch now, _ := b.state(); {
	case !now.Known:
		return math.NaN()
	case now.Cause != "":
		return 0
	}
	return 1
}

func (b *breaker) failingSince() float64 {
	now, _ := b.state()
	if now.Cause == "" {
		return math.NaN()
	}
	return float64(now.Since.UnixMilli()) / 1000
}

// operations are the values of the label: their series exist before the first call.
func operations() []string {
	all := []string{"create_project", "read_event_log_streaming", "set_event_log_streaming"}
	for _, c := range []Change{RenameProject, UpdateRedirectURL, UnsetDefaultEmailTemplate, DeleteSecret, DeletePublicToken} {
		all = append(all, call{operation: c.operation}.label())
	}
	for _, s := range kinds.All() {
		all = append(all, call{operation: s.Operation}.label())
	}
	return all
}

// codeNone stands for no answer.
const codeNone = "error"

// attempt counts one attempt; err is its failure, or nil.
func (m *metrics) attempt(operation string, status int, err error, took time.Duration) {
	code := strconv.Itoa(status)
	var api *APIError
	if errors.As(err, &api) {
		code = strconv.Itoa(api.Status)
	} else if err != nil {
		code = codeNone
	}
	m.requests.WithLabelValues(operation, code).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
