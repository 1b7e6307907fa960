package routing

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count what routes do, labelled by sink. A nil *Metrics counts nothing.
type Metrics struct{ unmatched, doubtful *prometheus.CounterVec }

// NewMetrics registers the metrics, or finds those that are registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	unmatched, err1 := Counter(reg, "unmatched_events_total", "Events that the sink's match left out; they count as delivered, too.")
	doubtful, err2 := Counter(reg, "match_errors_total", "Events for which the sink's match.cel failed; they are delivered.")
	return &Metrics{unmatched, doubtful}, errors.Join(err1, err2)
}

// Counter registers a counter labelled by sink, or finds the one that is registered.
func Counter(reg prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auditrelay_sink_" + name, Help: help}, []string{"sink"})
	err := reg.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if c, ok := before.ExistingCollector.(*prometheus.CounterVec); ok {
			return c, nil
		}
	}
	return c, err
}

// counts are one sink's; the zero value counts nothing.
type counts struct{ unmatched, doubtful prometheus.Counter }

func (m *Metrics) of(sink string) counts {
	if m == nil {
		return counts{}
	}
	return counts{m.unmatched.WithLabelValues(sink), m.doubtful.WithLabelValues(sink)}
}

func (c counts) add(unmatched, doubtful int) {
	if c.unmatched != nil {
		c.unmatched.Add(float64(unmatched))
		c.doubtful.Add(float64(doubtful))
	}
}
