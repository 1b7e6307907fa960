package sinks

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/relay"
)

// Kind is a kind of sink that a Go program adds; see [NewKind].
type Kind struct {
	kind config.Kind
	open func(config.Section, Options) (relay.Sink, error)
}

// Kinds are the kinds of a Go program.
type Kinds []Kind

// Options are what a sink of a [Kind] is given by the relay.
type Options struct {
	// Logger is for what the sink does on its own, such as reconnecting. The pump logs the
	// errors of Deliver.
	Logger *slog.Logger
	// Registerer takes the sink's metrics; see [Register]. It puts auditrelay_sink_ before
	// their names and adds the label sink, with the sink's name. With `config check` and `sinks
	// check`, nothing is counted.
	Registerer prometheus.Registerer
}

// Register registers a metric of a sink, such as the result of prometheus.NewCounter. If
// another instance of the sink has registered it before, Register returns that metric, so that
// all instances count together. Without a Registerer the metric works, and nobody reads it.
func Register[C prometheus.Collector](opts Options, metric C) (C, error) {
	if opts.Registerer == nil {
		return metric, nil
	}
	registered, err := routing.Register(opts.Registerer, metric)
	if err != nil {
		return metric, fmt.Errorf("register metrics: %w", err)
	}
	return registered, nil
}

// NewKind makes a kind of sink. In the configuration, a sink of the kind has a section called
// name (see [config.Kind]). It is decoded into the struct T, completed and validated before
// open is called. If *T is a [config.Warner], its warnings are shown.
//
// open makes a sink that keeps the contract of [relay.Sink]; relaytest.Run tests it. It is
// called N times for a sink with `parallel: N`, and once more for each replay and for `sinks
// check`. open connects to nothing, and its errors name the field that is wrong, and no secret.
func NewKind[S interface {
	*T
	config.Section
}, T any](name string, open func(section S, opts Options) (relay.Sink, error)) Kind {
	return Kind{
		kind: config.Kind{Name: name, New: func() config.Section { return S(new(T)) }},
		open: func(section config.Section, opts Options) (relay.Sink, error) {
			own, ok := section.(S)
			if !ok {
				return nil, fmt.Errorf("the section of %s is a %T", name, section)
			}
			return open(own, opts)
		},
	}
}

// Config returns the kinds in the form in which the configuration is loaded with them.
func (k Kinds) Config() config.Kinds {
	kinds := make(config.Kinds, len(k))
	for i := range k {
		kinds[i] = k[i].kind
	}
	return kinds
}

var errNoCase = errors.New("its destination has no case in the switch of package sinks")

// open makes a sink of a program's kind. Without reg, nothing is counted.
func (k Kinds) open(s config.Sink, log *slog.Logger, reg prometheus.Registerer) (relay.Sink, error) {
	if s.Custom == nil {
		return nil, errNoCase
	}
	for _, kind := range k {
		if kind.kind.Name == s.Custom.Kind {
			reg = prometheus.WrapRegistererWithPrefix(routing.MetricPrefix, prometheus.WrapRegistererWith(prometheus.Labels{"sink": s.Name}, reg))
			return kind.open(s.Custom.Section, Options{Logger: log, Registerer: reg})
		}
	}
	return nil, fmt.Errorf("no kind of sink is called %q", s.Custom.Kind)
}
