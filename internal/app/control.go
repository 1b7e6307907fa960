package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// control has the parts that one relay of a cluster has at a time, since they write the trail or
// set what the provider does. On a disk that is the only relay. They start in two steps: the
// second one, which has the provider push, waits until pushes are taken.
type control struct {
	*process
	turn *lease.Turn

	starting sync.Mutex      // held while parts are started or stopped
	over     bool            // nothing is started any more; guarded by starting
	stack    stack           // of the first step; guarded by starting, and by stopped once it is over
	stopped  sync.Once       // undoes the first step
	acting   stack           // of the second one; guarded by starting
	life     context.Context // ends when the relay begins to stop
	endLife  context.CancelFunc
	beats    *beats // of the heartbeat; nil until it has started; guarded by starting

	trail      *audit.Trail
	files      *tiles.Keeper // of the trail
	timeline   *timeline.Index
	silences   *health.Silences
	health     *health.Keeper                       // the last part of the first step
	spans      []*eventproof.Keeper                 // of each log of the journal; nil: no spans are made
	forwarded  atomic.Int64                         // how many entries of the trail are in the journal
	covered    atomic.Int64                         // how many of them have a checkpoint there
	passing    passing                              // metrics of what a reload starts again
	newest     workspace.Newest                     // looks at the settings and the streaming config
	reconciler atomic.Pointer[streaming.Reconciler] // nil until it looks after the streaming config
	desk       atomic.Pointer[workspace.Desk]       // nil until people may act on the workspace
}

func newControl(r *process) *control {
	c := &control{process: r, stack: stack{log: r.log}, acting: stack{log: r.log}}
	c.life, c.endLife = context.WithCancel(context.Background())
	r.reg.MustRegister(&c.passing)
	return c
}

// begin takes the first step, under the turn of this relay.
func (c *control) begin(ctx context.Context, turn *lease.Turn) error {
	c.turn = turn
	return c.take(ctx, c.startTrimming, c.startTrail, c.startWitnesses, c.noteLogs, c.startTiles, c.startTimeline, c.startConsole,
		c.startForwarding, c.startLifecycle, c.startSpans, c.startQuarantineWatch, c.startDamage, c.startHealth)
}

// act takes the second step.
func (c *control) act(ctx context.Context) error {
	return c.take(ctx, c.startAsking)
}

// startAsking starts what reads the sections of the configuration that a reload may change.
func (c *control) startAsking(ctx context.Context) error {
	return errors.Join(c.startWorkspace(ctx), c.startForeign(), c.startHeartbeat(ctx))
}

// reconfigure has the environments judged by the configuration as it is now, and starts what asks
// the workspace again. Before the first step, and once the relay stops, there is nothing to do.
func (c *control) reconfigure(ctx context.Context) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.over || c.health == nil {
		return nil
	}
	c.silences.Reconfigure(c.environments())
	c.health.Reconfigure(c.cfg().Environments, c.cfg().Streaming.Interval, c.declaredOrNil())
	if len(c.acting.steps) == 0 { // the second step was not taken yet
		return nil
	}
	if err := c.acting.unwind(ctx); err != nil {
		c.log.Warn("a part that asks the workspace has not ended yet; it ends with what it is doing", "error", err)
	}
	return c.startAsking(ctx)
}

// take starts parts, each on those before it, unless the relay is stopping.
func (c *control) take(ctx context.Context, parts ...func(context.Context) error) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.over {
		return context.Canceled
	}
	return startAll(ctx, parts...)
}

// runActing has work done as a part of the second step, until the relay begins to stop.
func (c *control) runActing(name string, work func(context.Context)) {
	c.acting.push(name, background(c.untilStop(work)))
}

// untilStop is work that ends as soon as the relay begins to stop. All such work ends at once, so
// that another relay need not wait until each part has written its last in turn.
func (c *control) untilStop(work func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		work(ctx)
	}
}

// stopActing undoes the second step, and has nothing started any more.
func (c *control) stopActing(ctx context.Context) error {
	c.endLife()
	c.starting.Lock()
	defer c.starting.Unlock()
	c.over = true
	return c.acting.unwind(ctx)
}

// stop undoes the first step. The console waits for the questions under way, and one of them may be a
// reload that waits for starting: it finds that it is over.
func (c *control) stop(ctx context.Context) (err error) {
	c.endLife()
	c.starting.Lock()
	c.over = true
	c.starting.Unlock()
	c.stopped.Do(func() { err = c.stack.unwind(ctx) })
	return err
}

// do is the job of control in a cluster. It ends with the relay: who has lost the turn cannot tell
// what the next holder has done with the trail meanwhile.
func (c *control) do(ctx context.Context, turn *lease.Turn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := c.begin(ctx, turn)
	if err == nil {
		select {
		case <-c.up:
			err = c.act(ctx)
		case <-ctx.Done():
		}
	}
	if err != nil && ctx.Err() == nil {
		c.fail(fmt.Errorf("start what one relay of the cluster does: %w", err))
	}
	<-ctx.Done()
	c.leave()           // it takes no jobs while it stops
	c.fail(errTurnLost) // nobody hears it where the relay stops for another reason
	<-c.life.Done()     // the relay stops, and what asks the workspace is stopped
	// Another relay may have control as soon as this one has stopped it: that waits neither for
	// pushes that are still answered nor for sinks.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg().ShutdownTimeout)
	defer cancel()
	if err := c.stop(stopping); err != nil {
		c.log.Warn("a part of control was not stopped properly", "error", err)
	}
	return ctx.Err()
}

// members are the relays that take part in the cluster.
func (c *control) members(ctx context.Context) ([]lease.Relay, error) {
	now, err := lease.State(ctx, c.store.Table())
	return now.Relays, err
}

// startTrimming lets this relay trim the journal, and spread it over another number of logs.
func (c *control) startTrimming(context.Context) error {
	c.journal.TrimUnder(c.turn)
	if c.inCluster() {
		c.stack.push("shards", background(func(ctx context.Context) { c.journal.Lead(ctx, c.members) }))
	}
	return nil
}

// shown is what parts show of themselves until they are stopped: metrics, sections of /status and
// parts of /readyz. It is the registerer of the parts, which a reload starts again.
type shown struct {
	prometheus.Registerer
	admin *admin.Handler
	names []string
}

// show begins with nothing shown; it is taken away when a stack is unwound, after the parts that are
// pushed to it from now on.
func (c *control) show(of *stack) *shown {
	metrics := prometheus.NewRegistry()
	c.passing.Store(metrics)
	s := &shown{Registerer: metrics, admin: c.admin}
	of.push("what is shown", func(context.Context) error {
		c.passing.Store(nil)
		for _, name := range s.names {
			s.admin.Remove(name)
		}
		return nil
	})
	return s
}

func (s *shown) addStatus(name string, read func(context.Context) (any, error)) {
	s.admin.AddStatus(name, read)
	s.names = append(s.names, name)
}

func (s *shown) addCheck(c admin.Check) {
	s.admin.AddCheck(c)
	s.names = append(s.names, c.Name)
}

// passing are the metrics of parts that come and go.
type passing struct {
	atomic.Pointer[prometheus.Registry]
}

// Describe implements [prometheus.Collector]: what comes and goes is not known beforehand.
func (p *passing) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (p *passing) Collect(to chan<- prometheus.Metric) {
	if metrics := p.Load(); metrics != nil {
		metrics.Collect(to)
	}
}
