package loki

import (
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Loki's own limits, which are seldom changed.
const (
	maxLabelValue = 2048
	maxTenant     = 150
)

// label is one label of the streams.
type label struct {
	name  string
	value *relay.Template
}

// lateLabel marks the streams of late entries.
const lateLabel = "late"

// configure reads cfg, except for what the client needs.
func (s *Sink) configure(cfg config.Loki) {
	s.cfg = cfg
	if cfg.Tenant != "" {
		s.tenant = relay.ParseTemplate(cfg.Tenant)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Labels)) {
		s.labels = append(s.labels, label{name, relay.ParseTemplate(cfg.Labels[name])})
	}
	s.own = s.attributes()
}

// A stream must have a label. This is that of an event without any of the configured labels.
const (
	serviceName = "service_name"
	service     = "auditrelay"
)

// attributes says which attributes are sent as metadata because no label carries them.
type attributes struct{ typ, project, environment bool }

func (s *Sink) attributes() attributes {
	carried := func(name string) bool {
		return slices.ContainsFunc(s.labels, func(l label) bool { return l.name == name && l.value.Text() == "{"+name+"}" })
	}
	return attributes{typ: !carried("type"), project: !carried("project"), environment: !carried("environment")}
}
