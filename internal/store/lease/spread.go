package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Work does a job until its context ends, and returns once it has stopped. What it makes
// durable in the table is conditional on the turn's guard; a [store.ErrConflict] then means that
// another relay has the job, or had it meanwhile. Work that returns earlier is begun again.
type Work func(ctx context.Context, t *Turn) error

// Options are of a relay that takes part.
type Options struct {
	Table store.Table
	// Name is the relay's, for people. Two relays may have the same.
	Name string
	// Was is the Self of a process that is known to have ended, and whose jobs may be taken at
	// once; empty where there is none.
	Was string
	// Joining, if set, is called with the relay's name in the cluster, before anybody else can
	// know it. An error ends Run.
	Joining func(self string) error
	// Jobs are what it can do. Those in Sticky are not moved for balance.
	Jobs   map[string]Work
	Sticky []string
	Timing Timing // DefaultTiming where it is zero
	// Says, if set, is what the relay tells the others with each heartbeat. Nothing here
	// depends on it.
	Says   func() string
	Logger *slog.Logger
}

// Run takes part in the cluster's work until ctx ends, and has given its jobs away then. It
// returns an error only if the table cannot be used any more.
func Run(ctx context.Context, o Options) error {
	if o.Timing == (Timing{}) {
		o.Timing = DefaultTiming
	}
	for {
		p := newPart(o)
		if o.Joining != nil {
			if err := o.Joining(p.self); err != nil {
				return err
			}
		}
		err := p.run(ctx)
		if !errors.Is(err, errDeclaredDead) {
			return err
		}
		o.Was = ""
		o.Logger.Warn("other relays have declared this one dead, as its heartbeats did not arrive; it begins again under another name", "was", p.self)
	}
}

var errDeclaredDead = errors.New("this relay was declared dead")

// part is one life of a relay in the cluster. Its machine and its jobs belong to the
// goroutine of run; what was read or written elsewhere is passed to it as a function.
type part struct {
	Options
	self    string
	start   time.Time
	machine *Machine
	heard   atomic.Int64
	said    chan func()
	doing   map[string]*doing // jobs that are under way, or stop
	asking  map[string]bool   // keys that are being read or written
	io      sync.WaitGroup
}

type doing struct {
	turn   *Turn
	ctx    context.Context // ended once the job is to stop
	cancel context.CancelFunc
}

func newPart(o Options) *part {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	self := o.Name + "." + hex.EncodeToString(id[:])
	jobs := slices.Sorted(maps.Keys(o.Jobs))
	return &part{
		Options: o, self: self, start: time.Now(), machine: NewMachine(self, o.Was, jobs, o.Sticky, o.Timing),
		said: make(chan func(), 16), doing: map[string]*doing{}, asking: map[string]bool{},
	}
}

// now is the monotonic time since the part's start.
func (p *part) now() time.Duration { return time.Since(p.start) }

// say has a function run by the goroutine that owns the machine.
func (p *part) say(ctx context.Context, f func()) {
	select {
	case p.said <- f:
	case <-ctx.Done():
	}
}

func (p *part) run(ctx context.Context) error {
	// The table is in use until the jobs have stopped and were given away.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer p.io.Wait()
	defer cancel()
	failed := make(chan error, 1)
	p.io.Go(func() { failed <- p.watch(inner) })
	tick := time.NewTicker(p.Timing.Beat / 10)
	defer tick.Stop()
	leaving := ctx.Done()
	for {
		select {
		case f := <-p.said:
			f()
		case <-tick.C:
		case <-leaving:
			p.machine.Leave()
			leaving = nil
		case err := <-failed:
			p.stopAll()
			return err
		}
		p.act(inner, p.machine.Decide(p.now()))
		if p.machine.Dead() {
			p.stopAll()
			return errDeclaredDead
		}
		if leaving == nil && p.hasLeft() {
			return p.left(inner)
		}
	}
}

// hasLeft reports whether no job is under way any more, no epoch names this relay, and no
// heartbeat is under way, which would keep it among the living. One that is cut off waits for
// neither of the latter.
func (p *part) hasLeft() bool {
	settled := !p.machine.holds() && !p.asking[beatKey+p.self]
	return len(p.doing) == 0 && (settled || p.now()-p.machine.heard >= p.Timing.Dead)
}

// left tells the others that this relay has gone, so that they need not wait. A crash before
// leaves them to find out.
func (p *part) left(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timing.Dead)
	defer cancel()
	key := beatKey + p.self
	_, err := p.Table.Put(ctx, key, nil, store.If{Key: key, Rev: p.machine.Known().Rev})
	if err != nil && !errors.Is(err, store.ErrConflict) {
		p.Logger.Info("the other relays could not be told that this one has left; they find out", "error", err)
	}
	return nil
}

// act does what the machine has decided.
func (p *part) act(ctx context.Context, d Decision) {
	for job, at := range p.doing {
		if e, held := d.Hold[job]; !held {
			at.cancel()
		} else if at.ctx.Err() == nil {
			at.turn.epoch.Store(&e)
		}
	}
	for job, e := range d.Hold {
		if p.doing[job] == nil {
			p.do(ctx, job, e)
		}
	}
	if d.Beat {
		p.beat(ctx)
	}
	for _, job := range d.Look {
		p.ask(ctx, epochKey+job, nil, p.epochFor(job))
	}
	for relay, b := range d.Declare {
		p.declare(ctx, relay, b)
	}
	for job, e := range d.Take {
		p.putEpoch(ctx, job, Epoch{Rev: e.Rev, Number: e.Number + 1, Holder: p.self})
	}
	for job, to := range d.Release {
		if e := p.machine.Epoch(job); p.doing[job] == nil { // it has stopped
			p.putEpoch(ctx, job, Epoch{Rev: e.Rev, Number: e.Number, For: to})
		}
	}
}

// do begins a job.
func (p *part) do(ctx context.Context, job string, e Epoch) {
	ctx, cancel := context.WithCancel(ctx)
	turn := NewTurn(job, e)
	turn.heard, turn.start, turn.within = &p.heard, p.start, (p.Timing.Beat+p.Timing.Dead)/2
	p.doing[job] = &doing{turn, ctx, cancel}
	p.Logger.Info("this relay does a job now", "job", job)
	p.io.Go(func() {
		for ctx.Err() == nil {
			err := p.Jobs[job](ctx, turn)
			if ctx.Err() == nil {
				p.Logger.Warn("a job has ended, and is begun again", "job", job, "error", err)
				_ = retry.Sleep(ctx, p.Timing.Beat) // the context's end ends the loop
			}
		}
		cancel()
		p.said <- func() { // somebody reads it: nothing ends before its jobs have stopped
			delete(p.doing, job)
			p.Logger.Info("this relay no longer does a job", "job", job)
		}
	})
}

// stopAll stops all jobs, and waits until they have stopped.
func (p *part) stopAll() {
	for _, at := range p.doing {
		at.cancel()
	}
	for len(p.doing) > 0 {
		(<-p.said)()
	}
}

// beat writes a heartbeat.
func (p *part) beat(ctx context.Context) {
	began, b := p.now(), Beat{Jobs: slices.Sorted(maps.Keys(p.Jobs)), At: time.Now().UTC(), Leaves: p.machine.Leaves()}
	if p.Says != nil {
		b.Says = p.Says()
	}
	pulse, _ := json.Marshal(b) // it always can be encoded
	p.ask(ctx, beatKey+p.self, &store.Value{Rev: p.machine.Known().Rev, Data: pulse}, func(asked time.Duration, v store.Value, written bool) {
		if !written {
			p.machine.FoundBeat(p.now(), asked, p.self, beatOf(v))
			return
		}
		p.machine.WroteBeat(p.now(), began, asked, beatOf(v))
		p.heard.Store(int64(p.machine.heard))
	})
}

// declare declares a relay dead: its own next heartbeat is refused.
func (p *part) declare(ctx context.Context, relay string, b Beat) {
	p.ask(ctx, beatKey+relay, &store.Value{Rev: b.Rev}, func(asked time.Duration, v store.Value, written bool) {
		if !written {
			p.machine.FoundBeat(p.now(), asked, relay, beatOf(v))
			return
		}
		p.machine.SawBeat(p.now(), relay, beatOf(v))
		p.Logger.Warn("a relay is declared dead, as its heartbeat has not changed", "relay", relay, "for", p.Timing.Dead)
	})
}

// putEpoch replaces a job's epoch that has the revision e.Rev. A crash before leaves the old one,
// after it the new one: if it names this relay, the others wait until they declare it dead.
func (p *part) putEpoch(ctx context.Context, job string, e Epoch) {
	e.Since = time.Now().UTC()
	data, _ := json.Marshal(e) // it always can be encoded
	p.ask(ctx, epochKey+job, &store.Value{Rev: e.Rev, Data: data}, p.epochFor(job))
}

// epochFor tells the machine of a job's epoch that was read or written.
func (p *part) epochFor(job string) func(asked time.Duration, v store.Value, written bool) {
	return func(asked time.Duration, v store.Value, written bool) {
		tell := p.machine.FoundEpoch
		if written {
			tell = p.machine.WroteEpoch
		}
		tell(p.now(), asked, job, p.epochOf(v))
	}
}

func (p *part) epochOf(v store.Value) Epoch {
	e, err := epochOf(v)
	if err != nil {
		p.Logger.Error("the epoch of a job cannot be read, and is replaced", "key", v.Key, "error", err)
	}
	return e
}

// ask puts a key's next value in the place of the one with its revision. Then is given what stands in
// the table: the written value, or, if that is not known to have succeeded or there is no next value,
// what its leader answers. Without an answer the machine asks again. Of one key, one question is under
// way at a time.
func (p *part) ask(life context.Context, key string, next *store.Value, then func(asked time.Duration, v store.Value, written bool)) {
	if p.asking[key] {
		return
	}
	p.asking[key] = true
	p.io.Go(func() {
		ctx, cancel := context.WithTimeout(life, p.Timing.Dead)
		defer cancel()
		v, written := store.Value{Key: key}, false
		if next != nil {
			rev, err := p.Table.Put(ctx, key, next.Data, store.If{Key: key, Rev: next.Rev})
			v.Rev, v.Data, written = rev, next.Data, err == nil
		}
		asked := p.now()
		var err error
		if !written {
			v, err = p.Table.Get(ctx, key)
		}
		p.say(life, func() {
			delete(p.asking, key)
			if err == nil {
				then(asked, v, written)
			}
		})
	})
}

// watch passes on what changes in the table.
func (p *part) watch(ctx context.Context) error {
	for v, err := range p.Table.Watch(ctx, clusterKeys) {
		if err != nil {
			return fmt.Errorf("watch the cluster's relays: %w", err)
		}
		p.say(ctx, func() {
			if relay, is := strings.CutPrefix(v.Key, beatKey); is {
				p.machine.SawBeat(p.now(), relay, beatOf(v))
			} else {
				p.machine.SawEpoch(p.now(), strings.TrimPrefix(v.Key, epochKey), p.epochOf(v))
			}
		})
	}
	return ctx.Err()
}
