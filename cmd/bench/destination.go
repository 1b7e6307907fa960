package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
)

// destinations are where the sinks of a row deliver.
type destinations struct {
	all    []readback.Destination
	sinks  string             // section of the relay's configuration
	broker string             // HOST:PORT, empty without Kafka
	kafka  *kafkatest.StandIn // nil without Kafka
	many   bool               // a record holds many events
}

// open starts the row's destination, with its files in dir.
func (r row) open(ctx context.Context, dir string) (*destinations, error) {
	if r.file {
		path := filepath.Join(dir, "delivered", "events")
		return &destinations{
			all:   []readback.Destination{&readback.File{Path: path}},
			sinks: fmt.Sprintf("  - {name: file, file: {path: %q, no_sync: true, rotate_bytes: -1, rotate_every: -1s}}\n", path),
		}, nil
	}
	kafka, err := kafkatest.StartStandIn(nil)
	if err != nil {
		return nil, err
	}
	const brokersDefault = -1
	if err := kafka.On(topic(0)).Create(ctx, brokersDefault); err != nil {
		kafka.Close()
		return nil, err
	}
	d := &destinations{kafka: kafka, broker: kafka.Brokers[0], sinks: r.kafkaSinks(kafka.Brokers[0]), many: r.mode == "batch"}
	for i := range r.sinkCount() {
		d.all = append(d.all, kafka.On(topic(i)))
	}
	return d, nil
}

func (d *destinations) close() {
	if d.kafka != nil {
		d.kafka.Close()
	}
}

// wait waits until each destination has n events, and returns when the last of
// them had.
func (d *destinations) wait(ctx context.Context, n int64) (last time.Time, err error) {
	for _, one := range d.all {
		if d.many {
			last, err = waitSettled(ctx, one, n)
		} else {
			last, err = waitDelivered(ctx, one, n)
		}
		if err != nil {
			return last, err
		}
	}
	return last, nil
}

// waitSettled is waitDelivered for records of many events. Counting those means reading them,
// which costs something, so it waits until no record has come for a while.
func waitSettled(ctx context.Context, d readback.Destination, n int64) (last time.Time, err error) {
	var had, counted, events int64
	const quiet = 500 * time.Millisecond
	for last = time.Now(); time.Since(last) < time.Minute; time.Sleep(5 * time.Millisecond) {
		have, err := d.Count(ctx)
		if err != nil && ctx.Err() != nil {
			return last, err
		}
		if have > had {
			had, last = have, time.Now()
		}
		if time.Since(last) < quiet || had == counted {
			continue
		}
		counted, events = had, 0
		if err := d.Read(ctx, func(string, []byte) { events++ }); err != nil || events >= n {
			return last, err
		}
	}
	return last, fmt.Errorf("%s has %d of %d acknowledged events, and gets no more", d.Name(), events, n)
}

// waitDelivered gives up when a minute has brought no record.
func waitDelivered(ctx context.Context, d readback.Destination, n int64) (time.Time, error) {
	var had int64
	for moved := time.Now(); time.Since(moved) < time.Minute; time.Sleep(5 * time.Millisecond) {
		have, err := d.Count(ctx)
		if err != nil && ctx.Err() != nil {
			return time.Time{}, err
		}
		if have >= n {
			return time.Now(), nil
		}
		if have > had {
			had, moved = have, time.Now()
		}
	}
	return time.Time{}, fmt.Errorf("%s has %d of %d acknowledged events, and gets no more", d.Name(), had, n)
}

// away is a broker where nothing listens.
const away = "127.0.0.1:1"

func (r row) kafkaSinks(broker string) string {
	var b strings.Builder
	for i := range r.sinkCount() {
		fmt.Fprintf(&b, "  - {name: kafka-%d, kafka: {brokers: [%q], topic: %s, mode: %s, create_topic: true}}\n",
			i, broker, topic(i), cmp.Or(r.mode, "binary"))
	}
	return b.String()
}

func topic(sink int) string { return fmt.Sprintf("events-%d", sink) }

func (r row) sinkCount() int { return max(1, r.sinks) }
