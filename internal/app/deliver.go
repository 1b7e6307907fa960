package app

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/retry"
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

// edition is a sink as one configuration has it.
type edition struct {
	cfg    config.Sink
	over   context.Context // ends when a reload has changed or removed the sink
	end    context.CancelFunc
	opened context.Context // ends once it is delivered to
	open   context.CancelFunc
}

func newEdition(cfg config.Sink) *edition {
	e := &edition{cfg: cfg}
	e.over, e.end = context.WithCancel(context.Background())
	e.opened, e.open = context.WithCancel(context.Background())
	return e
}

// couriers know each sink's newest edition. Each sink changes over by itself: its goroutine ends
// the delivery to the edition before, closes that, and goes on with the newest one from the
// position in the journal. So a sink that hangs holds up nobody else.
type couriers struct {
	mu      sync.Mutex
	newest  map[string]*edition // by sink; guarded by mu
	working map[string]bool     // the sinks with a goroutine, on a disk; guarded by mu
	places  map[string]*place   // by what is written; guarded by mu
	begin   func(string)        // begins a goroutine; nil in a cluster, and once the sinks stop; guarded by mu
}

// next returns the newest edition of a sink; nil if it was removed: then its goroutine ends.
func (c *couriers) next(name string) *edition {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.newest[name]
	if e == nil {
		delete(c.working, name)
	}
	return e
}

// replace takes the sinks of another configuration, and returns the new editions that this relay
// will deliver to. Those that are touched count as changed.
func (c *couriers) replace(sinks []config.Sink, touched func(name string) bool) (fresh []*edition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.newest
	c.newest = map[string]*edition{}
	for _, cfg := range sinks {
		e := was[cfg.Name]
		if e == nil || touched(cfg.Name) || !reflect.DeepEqual(e.cfg, cfg) {
			e = newEdition(cfg)
			if c.begin != nil || was[cfg.Name].isOpen() {
				fresh = append(fresh, e)
			}
		}
		c.newest[cfg.Name] = e
	}
	for name, e := range was {
		if c.newest[name] != e {
			e.end()
		}
	}
	for name := range c.newest {
		if c.begin != nil && !c.working[name] {
			c.working[name] = true
			c.begin(name)
		}
	}
	return fresh
}

// place is what only one sink may write, such as a file, while one does.
type place struct {
	sink  string
	uses  int           // guarded by the couriers' mu
	freed chan struct{} // closed when the sink has left it
}

// occupy waits until no other sink writes what this one does, which another one may have written until the
// newest reload. The same sink may occupy it several times.
func (c *couriers) occupy(ctx context.Context, cfg *config.Sink) (leave func(), err error) {
	one := cfg.Exclusive()
	if one == nil {
		return func() {}, nil
	}
	field, name := one.Resource()
	key := field + " " + name
	for {
		c.mu.Lock()
		p := c.places[key]
		if p == nil {
			p = &place{sink: cfg.Name, freed: make(chan struct{})}
			c.places[key] = p
		}
		if p.sink == cfg.Name {
			p.uses++
			c.mu.Unlock()
			return func() { c.leave(key, p) }, nil
		}
		c.mu.Unlock()
		select {
		case <-p.freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *couriers) leave(key string, p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.uses--; p.uses == 0 {
		delete(c.places, key)
		close(p.freed)
	}
}

// isOpen reports whether there is such an edition, and it is delivered to, or was.
func (e *edition) isOpen() bool { return e != nil && e.opened.Err() != nil }

// startSinks begins to deliver to the sinks, on a disk, and returns once each is open. They stop
// together.
func (r *process) startSinks(ctx context.Context) error {
	delivering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	r.couriers.mu.Lock()
	r.couriers.begin = func(name string) {
		running.Go(func() {
			if err := r.doSink(delivering, name, 0, new(lease.Turn)); err != nil && delivering.Err() == nil {
				r.fail(err)
			}
		})
	}
	r.couriers.mu.Unlock()
	r.stack.push("sinks", func(ctx context.Context) error {
		r.couriers.mu.Lock()
		r.couriers.begin = nil
		r.couriers.mu.Unlock()
		cancel()
		return background(func(context.Context) { running.Wait() })(ctx)
	})
	for _, e := range r.couriers.replace(r.cfg().Sinks, func(string) bool { return false }) {
		select {
		case <-e.opened.Done():
		case err := <-r.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// doSink delivers the events of a log to a sink until ctx ends, or it is removed, or its delivery fails for good: to
// each edition in turn.
func (r *process) doSink(ctx context.Context, name string, shard int, turn *lease.Turn) error {
	for changed := false; ; changed = true {
		e := r.couriers.next(name)
		if e == nil {
			r.deliveries.End(name)
			return nil
		}
		err := r.deliverTo(ctx, e, shard, turn, changed)
		if ctx.Err() != nil || e.over.Err() == nil {
			return err
		}
	}
}

// deliverTo delivers to one edition of a sink. A changed one that cannot be opened is opened
// again, since a reload has tried that it can be.
func (r *process) deliverTo(ctx context.Context, e *edition, shard int, turn *lease.Turn, changed bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.over, cancel)()
	leave, err := r.couriers.occupy(ctx, &e.cfg)
	if err != nil {
		return err
	}
	defer leave()
	var d *delivery
	err = retry.Insist(ctx, r.log, "opening the changed sink "+e.cfg.Name, func(error) bool { return !changed }, func() (err error) {
		d, err = r.openSink(ctx, e.cfg, shard, turn)
		return err
	})
	if err != nil {
		return err
	}
	e.open()
	return d.run(ctx)
}
