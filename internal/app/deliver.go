package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
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

// startLetters opens the dead letters. Those beyond their budget count as undelivered.
func (r *process) startLetters(ctx context.Context) (err error) {
	r.letters, err = deadletters.Open(ctx, deadletters.Options{
		Store: r.store, Quarantine: r.quarantine, Budget: int64(r.cfg().Journal.DeadLetterBytes),
		Logger: r.log, Registerer: r.reg, Sinks: r.sinkNames(),
	})
	if err != nil {
		return err
	}
	r.stack.push("dead letters", func(context.Context) error { return r.letters.Close() })
	r.letters.Beyond(r.journal.HoldBeyond)
	r.admin.AddCheck(admin.Check{Name: "dead letters", Probe: r.lettersRemark})
	return nil
}

// lettersRemark names the environments whose dead letters are close to their budget at a
// sink. Pushes are taken all the while, so it is no reason to send them elsewhere.
func (r *process) lettersRemark(ctx context.Context) (string, error) {
	usage, err := r.letters.Usage(ctx)
	if err != nil {
		return "warning: " + err.Error(), nil //nolint:nilerr // it says so
	}
	var warnings []string
	letters := uint64(0)
	for sink, u := range usage {
		letters += u.Letters
		source, bytes := u.Fullest()
		switch share := float64(bytes) / float64(r.cfg().Journal.DeadLetterBytes); {
		case share >= 1:
			warnings = append(warnings, fmt.Sprintf("the letters of %s at %s take all of their budget; more of them count as undelivered events, "+
				"so its pushes are refused in the end", sourceName(source), sink))
		case share >= warnShare:
			warnings = append(warnings, fmt.Sprintf("the letters of %s at %s take %.1f%% of their budget", sourceName(source), sink, 100*share))
		}
	}
	if len(warnings) > 0 {
		slices.Sort(warnings)
		return "warning: " + strings.Join(warnings, "; ") + "; replay or discard some, see 'auditrelay deadletters --help'", nil
	}
	return fmt.Sprintf("%d", letters), nil
}

// sourceName is a source of events, for people.
func sourceName(source string) string {
	if source == relay.TrailSource {
		return "the audit trail"
	}
	return strings.Replace(strings.TrimPrefix(source, "/projects/"), "/environments/", "/", 1)
}

// startTraces makes the traces of pushes, if they are configured.
func (r *process) startTraces(ctx context.Context) error {
	t := r.cfg().Traces
	if t.Endpoint == "" {
		return nil
	}
	var err error
	r.tracer, err = traces.New(ctx, traces.Options{
		Endpoint: t.Endpoint, Headers: t.Headers, TLS: t.TLS, Ratio: t.Ratio, Version: r.version, Logger: r.log,
	})
	if err != nil {
		return err
	}
	r.stack.push("traces", func(ctx context.Context) error {
		if err := r.tracer.Close(ctx); err != nil {
			r.log.Warn("the last traces were dropped", "error", err)
		}
		return nil // losing traces is harmless
	})
	return nil
}
