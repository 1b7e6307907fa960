// Package sinks makes the sink that a section of the configuration describes.
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

// Deps are what sinks take from the program around them.
type Deps struct {
	// Logger gets what sinks do of their own accord, with the attribute "sink".
	// Default: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics of sinks; those of all sinks are the same,
	// labelled by sink. Default: nothing is counted.
	Registerer prometheus.Registerer

	topics []string // that Check looks at
}

// Open makes the sink that s describes. It connects to nothing and fails only
// where s is wrong or names a file that cannot be used; errors name the sink.
// What s says of batches and time limits is for the pump in front of the sink;
// what it says of match and redact is done by the sink that is returned, for
// live events, replays and dead letters alike.
func Open(s config.Sink, d Deps) (relay.Sink, error) {
	route, err := d.route(s)
	if err != nil {
		return nil, fmt.Errorf("open sink %q: %w", s.Name, err)
	}
	sink, err := d.open(s)
	if err != nil {
		return nil, fmt.Errorf("open sink %q: %w", s.Name, err)
	}
	return route.Wrap(sink), nil
}

func (d Deps) route(s config.Sink) (*routing.Route, error) {
	opts := routing.Options{Sink: s.Name, Logger: d.logger(s.Name)}
	if d.Registerer != nil && s.Match != nil {
		metrics, err := routing.NewMetrics(d.Registerer)
		if err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		opts.Metrics = metrics
	}
	return routing.New(s.Match, s.Redact, opts)
}

func (d Deps) open(s config.Sink) (relay.Sink, error) {
	log := d.logger(s.Name)
	if n := destinations(s); n != 1 {
		return nil, fmt.Errorf("it has %d of the destinations kafka, nats, loki, datadog, webhook and file, and needs exactly one", n)
	}
	switch {
	case s.Kafka != nil:
		return orError(kafka.New(*s.Kafka, kafka.Options{Logger: log, BatchBytes: int64(s.BatchBytes), CheckTopics: d.topics}))
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
		return orError(webhook.New(*s.Webhook))
	case s.File != nil:
		return orError(file.New(*s.File, file.Options{Logger: log}))
	}
	return nil, errors.New("its destination is not known")
}

// duplicates counts what a NATS sink's stream had stored before; nil without a Registerer.
func (d Deps) duplicates(sink string) (prometheus.Counter, error) {
	if d.Registerer == nil {
		return nil, nil
	}
	c, err := routing.Counter(d.Registerer, "duplicate_events_total",
		"Delivered events that the destination says it had stored before, as after a lost answer.")
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return c.WithLabelValues(sink), nil
}

// ErrNoCheck is what [Check] returns for a sink that cannot be checked.
var ErrNoCheck = errors.New("this kind of sink cannot be checked without a delivery")

// Check makes the sink that s describes, and has it look at its destination as
// relay.Checker says: it delivers nothing. It works beside a running relay. What
// the events of each of the environments go to is reported, and looked at where
// that can be done.
func Check(ctx context.Context, s config.Sink, environments []config.Environment, report func(what, found string)) error {
	destinations, err := Destinations(s, environments)
	if err != nil {
		return err
	}
	reportTo(destinations, report)
	d := Deps{}
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

// orError keeps a nil pointer beside an error from becoming a sink that is not nil.
func orError[S relay.Sink](sink S, err error) (relay.Sink, error) {
	if err != nil {
		return nil, err
	}
	return sink, nil
}

func destinations(s config.Sink) (n int) {
	for _, set := range []bool{s.Kafka != nil, s.NATS != nil, s.Loki != nil, s.Datadog != nil, s.Webhook != nil, s.File != nil} {
		if set {
			n++
		}
	}
	return n
}

func (d Deps) logger(sink string) *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger.With("sink", sink)
}
