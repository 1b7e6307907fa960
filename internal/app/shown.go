package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// shown is what parts show of themselves until they are stopped: metrics, sections of /status and
// parts of /readyz. It is the registerer of the parts, which a reload starts again.
type shown struct {
	*process
	metrics []prometheus.Collector
	names   []string
}

// show begins with nothing shown; it is taken away when a stack is unwound, after the parts that are
// pushed to it from now on.
func (r *process) show(of *stack) *shown {
	s := &shown{process: r}
	of.push("what is shown", func(context.Context) error {
		for _, m := range s.metrics {
			r.reg.Unregister(m)
		}
		for _, name := range s.names {
			r.admin.Remove(name)
		}
		return nil
	})
	return s
}

// Register implements [prometheus.Registerer].
func (s *shown) Register(m prometheus.Collector) error {
	err := s.reg.Register(m)
	if err == nil {
		s.metrics = append(s.metrics, m)
	}
	return err
}

// MustRegister implements [prometheus.Registerer].
func (s *shown) MustRegister(all ...prometheus.Collector) {
	for _, m := range all {
		if err := s.Register(m); err != nil {
			panic(err)
		}
	}
}

// Unregister implements [prometheus.Registerer].
func (s *shown) Unregister(m prometheus.Collector) bool { return s.reg.Unregister(m) }

func (s *shown) addStatus(name string, read func(context.Context) (any, error)) {
	s.admin.AddStatus(name, read)
	s.names = append(s.names, name)
}

func (s *shown) addCheck(c admin.Check) {
	s.admin.AddCheck(c)
	s.names = append(s.names, c.Name)
}

var _ prometheus.Registerer = (*shown)(nil)
