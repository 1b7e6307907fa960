package app

import (
	"context"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// startSinks opens each sink and its position, and then starts the pumps.
func (r *process) startSinks(ctx context.Context) error {
	r.deliveries = relay.NewMetrics(r.reg)
	for _, name := range r.sinkNames() {
		r.deliveries.Begin(name)
	}
	var pumps []*relay.Pump
	for _, cfg := range r.cfg.Sinks {
		pump, err := r.openSink(ctx, cfg)
		if err != nil {
			return err
		}
		pump.Metrics = r.deliveries
		pumps = append(pumps, pump)
	}
	r.admin.AddCheck(admin.Check{Name: "sinks", Probe: r.sinksRemark})
	r.stack.push("pumps", background(func(ctx context.Context) {
		var running sync.WaitGroup
		for _, pump := range pumps {
			running.Go(func() {
				if err := pump.Run(ctx); ctx.Err() == nil {
					r.fail(err)
				}
			})
		}
		running.Wait()
	}))
	return nil
}

func (r *process) openSink(ctx context.Context, cfg config.Sink) (*relay.Pump, error) {
	var instances []relay.Sink
	for range max(1, cfg.Parallel) {
		sink, err := sinks.Open(cfg, r.sinkDeps())
		if err != nil {
			return nil, err
		}
		r.stack.push("sink "+cfg.Name, func(context.Context) error { return sink.Close() })
		instances = append(instances, sink)
	}
	r.live[cfg.Name] = instances[0]
	limit := relay.BatchLimit{Events: cfg.BatchEvents, Bytes: int(cfg.BatchBytes), Wait: cfg.BatchWait}
	source, err := r.journal.Source(ctx, cfg.Name, limit)
	if err != nil {
		return nil, err
	}
	r.stack.push("position of sink "+cfg.Name, func(context.Context) error { source.Close(); return nil })
	return &relay.Pump{
		Name: cfg.Name, Source: r.tracer.Source(cfg.Name, source, journal.DeliveredRecord), Sink: instances[0], Parallel: instances[1:], DeadLetters: r.letters,
		ReadAhead: true, Limit: limit, Timeout: cfg.Timeout, Logger: r.log,
	}, nil
}
