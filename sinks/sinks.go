// Package sinks makes a sink from its section of the configuration.
//
// # A sink of a Go program's own
//
// [NewKind] names a section of the configuration and makes the sink for it. The section's
// errors and warnings are shown like those of the built-in kinds, and the sink can have
// metrics ([Register]). The package cli under relay runs the relay, with all of its
// commands, with such kinds. The example there is a whole program, and its test delivers
// a pushed event to it.
//
// # A further built-in sink
//
// It touches three places in the code: a package of its own, like sinks/file; its
// section, a file like config/sink_file.go with a field in config.Sink; and the switch in
// this file. A test makes sure that the rest of the product names no kinds. Other tests
// then ask for the documentation: the fields in config/example.yaml, and the room in
// cmd/auditrelay/house_test.go and ARCHITECTURE.md.
package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/datadog"
	"github.com/auditrelay/auditrelay/sinks/file"
	"github.com/auditrelay/auditrelay/sinks/kafka"
	"github.com/auditrelay/auditrelay/sinks/loki"
	"github.com/auditrelay/auditrelay/sinks/nats"
	"github.com/auditrelay/auditrelay/sinks/webhook"
)

// Deps are what the sinks are given by the relay.
type Deps struct {
	// Logger is for what the sinks do on their own, with the attribute "sink". By default
	// nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics of sinks, which are the same for all sinks, labelled by
	// sink. By default nothing is counted.
	Registerer prometheus.Registerer
	// Kinds are the kinds of the program.
	Kinds Kinds
	// Journal is where the events of a live sink come from. Without it no sink delivers exactly
	// once.
	Journal *Journal

	topics []string // for Check
}

// Journal is what a sink that delivers exactly once knows about the journal of its events.
type Journal = kafka.Journal

// Open completes s (see [config.Sink.Complete]) and makes the sink. It connects to nothing, and
// fails only if s is wrong or names a file that cannot be used; errors name the sink. The
// batches and time limits of s are for the pump that calls the sink. The sink itself does
// match, redact and format, for live events, replays and dead letters alike.
func Open(s config.Sink, d Deps) (relay.Sink, error) {
	sink, err := d.open(s)
	if err != nil {
		return nil, fmt.Errorf("open sink %q: %w", s.Name, err)
	}
	return sink, nil
}

func (d Deps) open(s config.Sink) (relay.Sink, error) {
	if err := s.Complete(); err != nil {
		return nil, err
	}
	route, err := d.route(s)
	if err != nil {
		return nil, err
	}
	sink, err := d.destination(s)
	if err != nil {
		return nil, err
	}
	return route.Wrap(sink), nil
}

// Route returns the choice of events, the redaction and the format of s, as [Open] applies them
// before the sink. It counts and logs nothing.
func Route(s config.Sink) (*routing.Route, error) {
	if err := s.Complete(); err != nil {
		return nil, fmt.Errorf("read sink %q: %w", s.Name, err)
	}
	return Deps{}.route(s)
}

func (d Deps) route(s config.Sink) (*routing.Route, error) {
	opts := routing.Options{Sink: s.Name, Logger: d.logger(s.Name), InOrder: s.ExactlyOnce(), OCSF: s.Format == config.FormatOCSF}
	if d.Registerer != nil && s.Match != nil {
		metrics, err := routing.NewMetrics(d.Registerer)
		if err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		opts.Metrics = metrics
	}
	return routing.New(s.Match, s.Redact, opts)
}

// destination makes the sink of a complete s.
func (d Deps) destination(s config.Sink) (relay.Sink, error) {
	log := d.logger(s.Name)
	switch {
	case s.Kafka != nil:
		return orError(kafka.New(*s.Kafka, kafka.Options{
			Logger: log, BatchBytes: int64(s.BatchBytes), CheckTopics: d.topics,
			Name: s.Name, Timeout: s.Timeout, Journal: d.Journal,
		}))
	case s.NATS != nil:
		duplicates, err := d.duplicates(s.Name)
		if err != nil {
			return nil, err
		}
		return orError(nats.New(*s.NATS, nats.Options{Logger: log, Duplicates: duplicates}))
	case s.Loki != nil:
		return orError(loki.New(*s.Loki, loki.Options{Logger: log}))
	case s.Datadog != nil:
		return orError(datadog.New(*s.Datadog, datadog.Options{}))
	case s.Webhook != nil:
		return orError(webhook.New(*s.Webhook, webhook.Options{Format: s.Format}))
	case s.File != nil:
		return file.New(*s.File, file.Options{Logger: log, Bodies: s.Format == config.FormatOCSF, BodyStart: routing.OCSFStart}), nil
	}
	return d.Kinds.open(s, log, d.Registerer)
}

// duplicates counts the events that a NATS sink's stream had already stored. It returns nil
// without a Registerer.
func (d Deps) duplicates(sink string) (prometheus.Counter, error) {
	if d.Registerer == nil {
		return nil, nil
	}
	c, err := routing.Counter(d.Registerer, "duplicate_events_total",
		"Delivered events that the destination says it had stored before, as happens after a lost answer.")
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return c.WithLabelValues(sink), nil
}

// ErrNoCheck is the error of [Check] for a sink that is no relay.Checker.
var ErrNoCheck = errors.New("this kind of sink cannot be checked without a delivery")

// Check opens s and examines its destination as relay.Checker says. It delivers nothing, and
// can be used while a relay is running. It reports where the events of each environment go, and
// examines those places if it can.
func Check(ctx context.Context, s config.Sink, environments []config.Environment, d Deps, report func(what, found string)) error {
	destinations, err := Destinations(s, environments, d)
	if err != nil {
		return err
	}
	reportTo(destinations, report)
	for _, to := range destinations {
		if to.Kind == "topic" && !to.ByType {
			d.topics = append(d.topics, to.Name)
		}
	}
	sink, err := Open(s, d)
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }() // nothing was delivered
	return check(ctx, sink, report)
}

func check(ctx context.Context, sink relay.Sink, report func(what, found string)) error {
	checker, can := sink.(relay.Checker)
	if !can {
		return ErrNoCheck
	}
	return checker.Check(ctx, report)
}

// orError keeps a nil pointer from becoming a non-nil interface.
func orError[S relay.Sink](sink S, err error) (relay.Sink, error) {
	if err != nil {
		return nil, err
	}
	return sink, nil
}

func (d Deps) logger(sink string) *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger.With("sink", sink)
}
