package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// CheckpointSubject is the subject of checkpoints' events: the trail's own.
const CheckpointSubject = ownSubject

const (
	// forwardBatch is after how many entries the position is kept, while there are more.
	forwardBatch = 64
	// A follower more than maxPassed checkpoints away from the end passes over some: a newer
	// checkpoint vouches for all entries under an older one.
	maxPassed = 64
	// shortPause and longPause bound the wait after a failure.
	shortPause, longPause = 100 * time.Millisecond, 10 * time.Second
)

// Forward calls entry for each sound entry in order, and checkpoint for each good checkpoint
// once its entries were handled, both at least once. It returns when ctx ends (its error). An
// unreadable entry is passed over, and has the trail read back, to be named. While there are
// many checkpoints to come, as at the first start on an old trail, some are passed over; the
// newest never is.
//
// Where a call fails it is made again, with growing pauses, for as long as it takes; an outage
// of the store is waited for, and so is an unusable trail. The position is kept in the table
// under a name, over restarts. After a crash the newest entries may come again. Of several relays
// on one cluster, the one with the turn forwards; one that was thought dead, and comes back, hands
// on again what the other one does, until it learns of it. One caller at a time is told of what is new.
func (t *Trail) Forward(ctx context.Context, name string, entry func(context.Context, Recorded) error, checkpoint func(context.Context, Kept) error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("forward the audit trail: %w", ctx.Err())
	case <-t.opened:
	}
	f := &forwarder{Trail: t, table: t.store.Table(), key: "trail/" + name, entry: entry, checkpoint: checkpoint, pause: shortPause}
	for {
		err := f.run(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("forward the audit trail: %w", ctx.Err())
		}
		if f.pause == shortPause && !errors.Is(err, errAnother) {
			t.log.Warn("forwarding the audit trail was interrupted; it goes on", "again_in", f.pause, "error", err)
		}
		_ = retry.Sleep(ctx, f.pause)
		f.pause = min(2*f.pause, longPause)
	}
}

// forwarder hands the trail's entries and checkpoints on.
type forwarder struct {
	*Trail
	table      store.Table
	key        string
	entry      func(context.Context, Recorded) error
	checkpoint func(context.Context, Kept) error

	at    reached
	rev   uint64        // of the kept position
	pause time.Duration // after the next failure: a short one once anything was handed on
}

// reached is how far the entries and checkpoints of the two logs were handed on.
type reached struct {
	EntriesLog     string    `json:"entries_log"`
	Entries        store.Pos `json:"entries"`
	CheckpointsLog string    `json:"checkpoints_log"`
	Checkpoints    store.Pos `json:"checkpoints"`
}

// errAnother says that another relay forwards the trail now.
var errAnother = errors.New("another relay forwards the trail")

// run hands on until something fails.
func (f *forwarder) run(ctx context.Context) error {
	if err := f.take(ctx); err != nil {
		return err
	}
	for {
		if err := f.step(ctx); err != nil {
			return err
		}
		select {
		case <-f.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take reads the position.
func (f *forwarder) take(ctx context.Context) error {
	v, err := f.table.Get(ctx, f.key)
	if err != nil {
		return fmt.Errorf("read how far the audit trail was forwarded: %w", err)
	}
	if f.at, f.rev = (reached{}), v.Rev; json.Unmarshal(v.Data, &f.at) != nil {
		f.at = reached{} // all is handed on again
	}
	return f.begin(ctx)
}

// begin makes the position fit the logs as they are. In another log, or one that lost its
// end, positions mean other records: then all are handed on again, under their old ids.
func (f *forwarder) begin(ctx context.Context) error {
	for _, of := range []struct {
		log store.Log
		id  *string
		pos *store.Pos
	}{{f.entries, &f.at.EntriesLog, &f.at.Entries}, {f.checkpoints, &f.at.CheckpointsLog, &f.at.Checkpoints}} {
		s, err := of.log.State(ctx)
		if err != nil {
			return fmt.Errorf("read the end of the audit trail: %w", err)
		}
		if id := s.ID.String(); *of.id != id || *of.pos > s.End {
			if *of.pos > 0 {
				f.log.Error("a log of the audit trail is another one than before; all of it is handed on again", "log", id, "before", *of.id)
			}
			*of.id, *of.pos = id, 0
		}
	}
	return f.save(ctx)
}

// save keeps the position. A crash before it has the newest entries handed on again.
func (f *forwarder) save(ctx context.Context) error {
	data, err := json.Marshal(f.at)
	if err != nil {
		return fmt.Errorf("encode how far the audit trail was forwarded: %w", err)
	}
	rev, err := f.table.Put(ctx, f.key, data, store.If{Key: f.key, Rev: f.rev})
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", errAnother, err)
	}
	if err != nil {
		return fmt.Errorf("keep how far the audit trail was forwarded: %w", err)
	}
	f.rev = rev
	return nil
}

// step hands on what there is: first the entries, and then the checkpoints that were there
// before, whose entries are among them.
func (f *forwarder) step(ctx context.Context) error {
	s, err := f.checkpoints.State(ctx)
	if err != nil {
		return fmt.Errorf("read the end of the checkpoints: %w", err)
	}
	before := f.at
	_, err = each(ctx, f.entries, f.at.Entries+1, func(item store.Item) error { return f.handOn(ctx, item) })
	if err == nil {
		_, err = each(ctx, f.checkpoints, f.at.Checkpoints+1, func(item store.Item) error { return f.handOnKept(ctx, item, s.End) })
	}
	if errors.Is(err, errEnd) {
		err = nil
	}
	if f.at != before { // after a failure and at the end, too: it is durable what was handed on
		keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), longPause)
		defer cancel()
		err = errors.Join(err, f.save(keeping))
	}
	return err
}

func (f *forwarder) handOn(ctx context.Context, item store.Item) error {
	to := f.at.Entries + 1
	if item.Gap != nil {
		to = item.Gap.To
		if !contains(f.view.Load().passed, int64(item.Gap.From)-1) {
			f.suspect(fmt.Sprintf("entries %d to %d are missing", int64(item.Gap.From)-1, int64(item.Gap.To)-1))
		}
	}
	if err := f.give(item, func(e Recorded) error { return f.entry(ctx, e) }); err != nil {
		return err
	}
	f.at.Entries, f.pause = to, shortPause
	if to%forwardBatch == 0 {
		return f.save(ctx)
	}
	return nil
}

// handOnKept hands on a checkpoint, of those up to last.
func (f *forwarder) handOnKept(ctx context.Context, item store.Item, last store.Pos) error {
	if item.Gap != nil {
		f.at.Checkpoints = item.Gap.To
		return nil
	}
	if item.Record.Pos > last {
		return errEnd
	}
	if item.Record.Pos+maxPassed > last {
		if c, err := decodeKept(item.Record); err == nil { // else the trail names it when it is read back
			if err := f.checkpoint(ctx, c); err != nil {
				return err
			}
		}
	}
	f.at.Checkpoints, f.pause = item.Record.Pos, shortPause
	return nil
}
