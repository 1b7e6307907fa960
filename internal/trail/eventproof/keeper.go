package eventproof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// retryPause is the wait after a failure.
const retryPause = 5 * time.Second

// Options say when a span ends.
type Options struct {
	// Subject is that of the spans' entries: see [SubjectOf].
	Subject string
	// Interval is the longest time from one span to the next, and Events about how many
	// events end it earlier.
	Interval time.Duration
	Events   int
	Logger   *slog.Logger
}

// Keeper enters spans into the trail. Make it before the journal is opened: the journal
// notes its records ([Keeper.Note]); the keeper reads the others itself.
type Keeper struct {
	opts  Options
	inbox inbox
	state atomic.Pointer[State]

	// Run's own.
	journal *journal.Journal
	trail   *audit.Trail
	open    building
	newest  uint64    // the newest position to be covered
	due     time.Time // when the open span ends
	stuck   bool      // the trail could not take it
	failing retry.Failure
}

// State is for people.
type State struct {
	// Through is the end of the newest span in the trail, a position of the journal.
	Through uint64 `json:"through_position"`
	// Entry is its index in the trail, -1 for none.
	Entry int64 `json:"entry"`
	// Failing says why the next span is late; empty while all is well.
	Failing string `json:"failing,omitempty"`
}

// New makes a keeper.
func New(o Options) *Keeper {
	o.Subject = cmp.Or(o.Subject, Subject)
	k := &Keeper{opts: o, inbox: inbox{events: o.Events, wake: make(chan struct{}, 1)}}
	k.state.Store(&State{Entry: -1})
	return k
}

// Note adds a durable record. It never waits, and may be called concurrently.
func (k *Keeper) Note(s journal.Sealed) { k.inbox.put(s) }

// State is how far the spans have come.
func (k *Keeper) State() State { return *k.state.Load() }

// Run enters spans until ctx ends. It logs a failure once, and tries again for as long as
// it takes; nobody waits for it.
func (k *Keeper) Run(ctx context.Context, j *journal.Journal, t *audit.Trail) {
	k.journal, k.trail = j, t
	for ctx.Err() == nil {
		err := k.resume(ctx)
		if err == nil {
			err = k.take(ctx)
		}
		if err == nil {
			err = k.reach(ctx, k.newest+1)
		}
		for err == nil {
			if err = k.step(ctx); err == nil {
				err = k.wait(ctx)
			}
		}
		if !errors.Is(err, errMoved) {
			k.tell(ctx, err)
			_ = retry.Sleep(ctx, retryPause)
		}
	}
}

// errMoved marks an open span out of date: another one was entered meanwhile.
var errMoved = errors.New("the open span is void")

// wait waits until there is something to do.
func (k *Keeper) wait(ctx context.Context) error {
	timer := time.NewTimer(time.Until(k.due))
	defer timer.Stop()
	select {
	case <-k.inbox.wake:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// step takes in the noted records, and enters the spans due.
func (k *Keeper) step(ctx context.Context) error {
	if err := k.take(ctx); err != nil || time.Now().Before(k.due) {
		return err
	}
	if err := k.reach(ctx, k.newest+1); err != nil {
		return err
	}
	return k.enter(ctx)
}

// full reports whether the open span has its number of events. While the trail cannot be
// used, it has no bound.
func (k *Keeper) full() bool { return !k.stuck && k.open.span.Events >= int64(k.opts.Events) }

// take adds the noted records, and those before them that nobody noted.
func (k *Keeper) take(ctx context.Context) error {
	waiting, newest := k.inbox.take()
	k.newest = max(k.newest, newest)
	slices.SortFunc(waiting, func(a, b journal.Sealed) int { return cmp.Compare(a.Position, b.Position) })
	for _, s := range waiting {
		if err := k.reach(ctx, s.Position); err != nil {
			return err
		}
		if s.Position == k.open.next() { // else it was read before
			k.open.add(s.Position, s.Digest)
		}
		if err := k.enterFull(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reach has the spans cover the positions before end. It reads the records from the journal.
func (k *Keeper) reach(ctx context.Context, end uint64) error {
	for k.open.next() < end {
		if err := k.readBack(ctx, end); err != nil {
			return err
		}
		if err := k.enterFull(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) enterFull(ctx context.Context) error {
	if !k.full() {
		return nil
	}
	return k.enter(ctx)
}

// readBack reads the positions before end from the journal, until the span is full. One
// without a readable record is missing.
func (k *Keeper) readBack(ctx context.Context, end uint64) error {
	var later error
	err := k.journal.Records(ctx, k.open.next(), end, func(position uint64, data []byte) bool {
		d, err := record.DigestOf(data)
		switch {
		case errors.Is(err, record.ErrVersion):
			later = fmt.Errorf("position %d: %w", position, err)
			return false
		case err == nil:
			k.open.skip(position, k.journal.Trimmed())
			k.open.add(position, d)
		}
		return !k.full()
	})
	if err = errors.Join(err, later); err != nil {
		return fmt.Errorf("read the journal back: %w", err)
	}
	if !k.full() {
		k.open.skip(end, k.journal.Trimmed())
	}
	return nil
}

// enter enters the open span, and opens the next. While the trail cannot be used, the span
// grows. A crash before the append leaves the records to the next start, and after a
// crash after it the next start begins after the span.
func (k *Keeper) enter(ctx context.Context) error {
	k.due = time.Now().Add(k.opts.Interval)
	if !k.open.worth() {
		return nil
	}
	e, err := audit.Update(ctx, k.trail, Project, "", k.opts.Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		if !found {
			last.Index = -1
		}
		if last.Index != k.open.previous {
			return nil, errMoved
		}
		return k.open.entry(time.Now())
	})
	if errors.Is(err, errMoved) || ctx.Err() != nil {
		return err
	}
	if k.stuck = err != nil; k.stuck {
		k.tell(ctx, fmt.Errorf("enter a span: %w", err))
		k.due = time.Now().Add(retryPause)
		return nil
	}
	return k.entered(e)
}

// entered opens the span after the one of an entry.
func (k *Keeper) entered(e *audit.Entry) error {
	previous, err := previousOf(e)
	if err != nil {
		return err
	}
	k.open = begin(k.open.next(), previous)
	k.failing.Over()
	k.state.Store(&State{Through: k.open.span.Last, Entry: e.Index})
	return nil
}

// tell logs a failure, and now and then again while it lasts.
func (k *Keeper) tell(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if k.failing.Again(err.Error()) {
		k.opts.Logger.Warn("the spans of the event stream are late; pushes and sinks do not wait for them, and it is tried again",
			append(k.failing.Fields(), "error", err)...)
	}
	late := k.State()
	late.Failing = err.Error()
	k.state.Store(&late)
}
