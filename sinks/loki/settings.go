package loki

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/sinks/template"
)

// limits are Loki's, as configured.
type limits struct {
	lineBytes       int
	metadataBytes   int
	metadataEntries int
	lateAfter       time.Duration
}

// Loki's own limits, which are seldom changed.
const (
	maxLabelValue = 2048
	maxTenant     = 150
)

// label is one label of the streams.
type label struct {
	name  string
	value *template.Template
}

// lateLabel marks the streams of what comes late.
const lateLabel = "late"

// configure reads all of cfg but what the client takes.
func (s *Sink) configure(cfg config.Loki) error {
	s.limits = limits{
		lineBytes:       orDefault(int(cfg.LineBytes), 256<<10),
		metadataBytes:   orDefault(int(cfg.MetadataBytes), 64<<10),
		metadataEntries: orDefault(cfg.MetadataEntries, 128),
		lateAfter:       orDefault(cfg.LateAfter, time.Hour),
	}
	if cfg.Tenant != "" {
		t, err := template.Parse(cfg.Tenant)
		if err != nil {
			return fmt.Errorf("tenant: %w", err)
		}
		s.tenant = t
	}
	if len(cfg.Labels) == 0 {
		cfg.Labels = map[string]string{serviceName: service, "project": "{project}", "environment": "{environment}"}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Labels)) {
		if err := s.addLabel(name, cfg.Labels[name]); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
	}
	s.own = s.attributes()
	return nil
}

// A stream has to have a label. Where an event has none of the configured ones,
// it is this.
const (
	serviceName = "service_name"
	service     = "auditrelay"
)

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

func (s *Sink) addLabel(name, value string) error {
	if !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__") {
		return fmt.Errorf(`%q is no name of a label: letters, digits and "_", with no digit and no "__" at the start`, name)
	}
	if name == lateLabel {
		return errors.New("late is the label of what comes late; choose another name")
	}
	t, err := template.Parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.labels = append(s.labels, label{name, t})
	return nil
}

// attributes tells which of those that a label may carry have to go along as
// metadata.
type attributes struct{ typ, project, environment bool }

func (s *Sink) attributes() attributes {
	carried := func(name string) bool {
		return slices.ContainsFunc(s.labels, func(l label) bool { return l.name == name && l.value.Text() == "{"+name+"}" })
	}
	return attributes{typ: !carried("type"), project: !carried("project"), environment: !carried("environment")}
}
