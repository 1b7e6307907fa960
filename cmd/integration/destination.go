package main

import (
	"context"
	"fmt"
	"slices"
)

// destination is a kind of server to deliver events to.
type destination struct {
	name  string
	about string
	// start starts it. A *skip names the tools this machine lacks.
	start func(ctx context.Context, s *session) (*place, error)
}

// destinations are all, in the order of the table.
func destinations() []destination {
	return []destination{
		{"file", "a file on this machine", startFile},
		{"kafka", "Apache Kafka, three brokers that are controllers too", startKafka},
		{"kafka-once", "the same, delivered to exactly once, while the relay is killed", startKafkaOnce},
		{"kafka-takeover", "the same, by two relays on a journal in four shards, each of which is killed and frozen", startKafkaTakeover},
		{"nats", "three nats-servers, JetStream with three copies", startNATS},
		{"loki", "Grafana Loki, built from its module", startLoki},
		{"datadog", "a strict fake of Datadog's logs intake", startDatadog},
		{"webhook", "an HTTP server that checks signatures", startWebhook},
		{"journal", "the relay's own journal on three nats-servers", startJournal},
	}
}

// place is a running destination.
type place struct {
	targets []target
	// journal returns the relay's journal section, in YAML, for a place that keeps the relay's
	// journal; such a place has a relay of its own. tag differs in each run. It is nil for
	// other places.
	journal func(tag string) string
	outage  *outage // nil if it has no node to kill
	// ordeal is nil unless relays are killed; such a place has a relay of its own.
	ordeal *ordeal
	// tails returns the end of its logs; nil if it has none.
	tails func() string
	close func()
}

// ordeal is what relays go through under load.
type ordeal struct {
	name  string // for the table
	times int
	run   func(ctx context.Context, p *playing) error
	// rivals says that the place's sink is one of relays that run starts, and not of the one that
	// takes the pushes.
	rivals bool
}

// target is a sink of the relay's, with its row in the table.
type target struct {
	name    string // of the row
	sink    string // of the sink, in the relay's configuration
	section string // the sink's section, in YAML: kafka: {…}
	// read returns the id of each event at the target, from the start.
	read func(ctx context.Context, add func(id string)) error
	// once means that no event may be there twice.
	once bool
	// faults returns the server's complaints about its requests. It may be nil.
	faults func() []string
}

// outage takes one node of a place away.
type outage struct {
	// kill kills a node in use at present, and names it.
	kill func(ctx context.Context) (what string, err error)
	// heal starts it again, and waits until it has caught up.
	heal func(ctx context.Context) error
}

// skip says why a destination is not available here.
type skip struct{ reason string }

func (s *skip) Error() string { return s.reason }

func names(all []destination) (names []string) {
	for _, d := range all {
		names = append(names, d.name)
	}
	return names
}

// choose returns the destinations with the names, or all.
func choose(only []string) ([]destination, error) {
	all := destinations()
	if len(only) == 0 {
		return all, nil
	}
	for _, name := range only {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("--only: there is no destination %q, see --help", name)
		}
	}
	return slices.DeleteFunc(all, func(d destination) bool { return !slices.Contains(only, d.name) }), nil
}
