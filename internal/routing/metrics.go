package routing

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/relay"
)

// Metrics count the work of routes, labelled by sink. A nil *Metrics counts nothing.
type Metrics struct{ unmatched, doubtful, withheld *prometheus.CounterVec }

// NewMetrics registers the metrics, or finds those that are registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	unmatched, err1 := Counter(reg, "unmatched_events_total", "Events left out by the sink's match; they count as delivered, too.")
	doubtful, err2 := Counter(reg, "match_errors_total", "Events with a failure of the sink's match.cel; match.on_error decides on them.")
	withheld, err3 := Counter(reg, "withheld_events_total", "Events not redacted, or not chosen, for certain; they are in the dead letters.")
	return &Metrics{unmatched, doubtful, withheld}, errors.Join(err1, err2, err3)
}

// MetricPrefix is how the names of the sinks' metrics begin.
const MetricPrefix = "auditrelay_sink_"

// Counter registers a counter labelled by sink, or finds the one that is registered.
func Counter(reg prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	return Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricPrefix + name, Help: help}, []string{"sink"}))
}

// Register registers a metric, or finds the one of the same name that is registered, since
// several instances of a sink share their metrics.
func Register[C prometheus.Collector](reg prometheus.Registerer, metric C) (C, error) {
	err := reg.Register(metric)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if found, ok := before.ExistingCollector.(C); ok {
			return found, nil
		}
	}
	return metric, err
}

// counts are the counters of one sink; the zero value counts nothing.
type counts struct{ unmatched, doubtful, withheld prometheus.Counter }

func (m *Metrics) of(sink string) counts {
	if m == nil {
		return counts{}
	}
	return counts{m.unmatched.WithLabelValues(sink), m.doubtful.WithLabelValues(sink), m.withheld.WithLabelValues(sink)}
}

func (c counts) add(made choice) {
	if c.unmatched == nil {
		return
	}
	c.unmatched.Add(float64(made.unmatched))
	c.doubtful.Add(float64(made.doubtful))
	for _, f := range made.withheld {
		if relay.IsPermanent(f.Err) {
			c.withheld.Inc()
		}
	}
}
