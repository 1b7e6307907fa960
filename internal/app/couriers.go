package app

import (
	"context"
	"reflect"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

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
