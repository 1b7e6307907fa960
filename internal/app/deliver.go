package app

import (
	"context"
	"errors"
	"slices"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// delivery carries the events of a log of the journal to a sink.
type delivery struct {
	pump  *relay.Pump
	stack stack
}

// run delivers until ctx ends, and closes the sink.
func (d *delivery) run(ctx context.Context) error {
	err := d.pump.Run(ctx)
	if err := d.close(); err != nil {
		d.pump.Logger.Warn("a sink was not closed properly", "sink", d.pump.Name, "error", err)
	}
	return err
}

func (d *delivery) close() error { return d.stack.unwind(context.Background()) }

// openSink opens a sink and its position under a turn.
func (r *process) openSink(ctx context.Context, cfg config.Sink, shard int, turn *lease.Turn) (d *delivery, err error) {
	d = &delivery{stack: stack{log: r.log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	from := r.journal.Logs()[shard]
	var instances []relay.Sink
	live := r.sinkDeps()
	live.Journal = &sinks.Journal{
		ID: from.ID(), Stream: from.Stream(), Holds: from.Holds,
		Epoch: func(ctx context.Context) (uint64, error) { return turn.Number(), turn.Await(ctx) },
	}
	for range max(1, cfg.Parallel) {
		sink, err := sinks.Open(cfg, live)
		if err != nil {
			return d, err
		}
		d.stack.push("sink "+cfg.Name, func(context.Context) error { return sink.Close() })
		instances = append(instances, sink)
	}
	limit := relay.BatchLimit{Events: cfg.BatchEvents, Bytes: int(cfg.BatchBytes), Wait: cfg.BatchWait}
	source, err := from.SourceUnder(ctx, turn, cfg.Name, limit)
	if err != nil {
		return d, err
	}
	if cfg.ExactlyOnce() {
		source.Place()
	}
	d.stack.push("position of sink "+cfg.Name, func(context.Context) error { source.Close(); return nil })
	r.lend(cfg.Name, instances[0])
	d.stack.push("lending of sink "+cfg.Name, func(context.Context) error { r.takeBack(cfg.Name, instances[0]); return nil })
	d.pump = &relay.Pump{
		Name: cfg.Name, Source: r.traced(cfg.Name, source), Sink: instances[0], Parallel: instances[1:], DeadLetters: r.letters,
		// An event that is set aside would be passed over by the position of those after it.
		Permit: turn.Await, ReadAhead: !cfg.ExactlyOnce(), Limit: limit, Timeout: cfg.Timeout, Logger: r.log, Metrics: r.deliveries,
	}
	return d, nil
}

// traced has spans made of the deliveries. Of several logs none are, since a push only knows its
// record's position.
func (r *process) traced(sink string, source relay.Source) relay.Source {
	if len(r.journal.Logs()) > 1 {
		return source
	}
	return r.tracer.Source(sink, source, journal.DeliveredRecord)
}

// lend notes an instance of a sink that is delivered to, until it is taken back.
func (r *process) lend(name string, sink relay.Sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[name] = append(r.live[name], sink)
}

func (r *process) takeBack(name string, sink relay.Sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[name] = slices.DeleteFunc(r.live[name], func(s relay.Sink) bool { return s == sink })
}
