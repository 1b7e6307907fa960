package app

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// shown is what parts show of themselves until they are stopped: metrics, sections of /status and
// parts of /readyz. It is the registerer of the parts, which a reload starts again.
type shown struct {
	prometheus.Registerer
	admin *admin.Handler
	names []string
}

// show begins with nothing shown; it is taken away when a stack is unwound, after the parts that are
// pushed to it from now on.
func (c *control) show(of *stack) *shown {
	metrics := prometheus.NewRegistry()
	c.passing.Store(metrics)
	s := &shown{Registerer: metrics, admin: c.admin}
	of.push("what is shown", func(context.Context) error {
		c.passing.Store(nil)
		for _, name := range s.names {
			s.admin.Remove(name)
		}
		return nil
	})
	return s
}

func (s *shown) addStatus(name string, read func(context.Context) (any, error)) {
	s.admin.AddStatus(name, read)
	s.names = append(s.names, name)
}

func (s *shown) addCheck(c admin.Check) {
	s.admin.AddCheck(c)
	s.names = append(s.names, c.Name)
}

// passing are the metrics of parts that come and go.
type passing struct {
	atomic.Pointer[prometheus.Registry]
}

// Describe implements [prometheus.Collector]: what comes and goes is not known beforehand.
func (p *passing) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (p *passing) Collect(to chan<- prometheus.Metric) {
	if metrics := p.Load(); metrics != nil {
		metrics.Collect(to)
	}
}
