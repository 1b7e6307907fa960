package journal

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

// mostMoves bounds the layout. Of more changes, the earliest count no longer for a sink that has
// still to read from before them.
const mostMoves = 16

// Lead changes the number of shards where all relays want another one, until ctx ends. It is for the
// relay that has control. relays are those that take part.
func (s *Set) Lead(ctx context.Context, relays func(context.Context) ([]lease.Relay, error)) {
	l := leader{set: s, steady: time.Now(), known: map[string]bool{}}
	for failing := (retry.Failure{}); retry.Sleep(ctx, lookPause) == nil; {
		all, err := relays(ctx)
		if err == nil {
			err = l.step(ctx, all, time.Now())
		}
		if ctx.Err() == nil && !errors.Is(err, store.ErrConflict) {
			failing.Tell(s.opts.Logger, err, "the number of shards was not looked after; it is tried again", "the number of shards is looked after again")
		}
	}
}

// leader is what the relay that has control knows of the others.
type leader struct {
	set    *Set
	known  map[string]bool // the relays that took part at the last step
	steady time.Time       // since when no relay was lost
}

// step takes the next step of a change, if one is due. A crash before the put of a step leaves it to
// the next step, here or on the relay that has control then.
func (l *leader) step(ctx context.Context, relays []lease.Relay, now time.Time) error {
	lay, err := l.set.look(ctx)
	if err != nil {
		return err
	}
	if now := l.set.layoutNow(); lay.Number < now.Number { // the table lost the newest one
		l.set.opts.Logger.Warn("the table has lost over how many shards the events are spread, and is told again", "shards", now.Shards, "next", now.Next)
		lay.Number = now.Number
		return lay.replace(ctx, l.set.table, *now)
	}
	wanted, oldest := l.hear(relays, now)
	if now.Sub(l.steady) <= l.set.stale {
		return nil // a relay that nobody hears of may follow an earlier layout
	}
	switch {
	case lay.Next == 0 && wanted > 0 && wanted != lay.Shards:
		l.set.opts.Logger.Info("the environments are about to be spread over another number of shards", "from", lay.Shards, "to", wanted)
		return lay.replace(ctx, l.set.table, layout{Shards: lay.Shards, Next: wanted, Moves: lay.Moves})
	case lay.Next > 0 && oldest >= lay.Number && lay.Logs <= len(l.set.logs):
		return l.open(ctx, lay)
	}
	return nil
}

// hear takes what the relays say: the number that all of them want, which is 0 if they differ, and the
// oldest layout that one of them follows.
func (l *leader) hear(relays []lease.Relay, now time.Time) (wanted int, oldest uint64) {
	here := map[string]bool{}
	oldest = ^uint64(0)
	for i, r := range relays {
		var s saying
		_ = json.Unmarshal([]byte(r.Says), &s) // one that says nothing wants no change
		if i == 0 {
			wanted = s.Shards
		}
		if s.Shards != wanted {
			wanted = 0
		}
		here[r.Name], oldest = true, min(oldest, s.Layout)
	}
	for name := range l.known {
		if !here[name] {
			l.steady = now
		}
	}
	if l.known = here; len(here) == 0 {
		return 0, 0
	}
	return wanted, oldest
}

// open makes the next number count. No relay appends events of an environment that moves, so that the
// ends stay true for them until this layout is replaced, by whomever.
func (l *leader) open(ctx context.Context, lay *layout) error {
	m := move{Number: lay.Number + 1}
	for _, j := range l.set.logs {
		_, end, err := j.Ends(ctx)
		if err != nil {
			return err
		}
		m.Ends = append(m.Ends, end)
	}
	moves := append(lay.Moves, m)
	moves = moves[max(0, len(moves)-mostMoves):]
	return lay.replace(ctx, l.set.table, layout{Shards: lay.Next, Moves: moves})
}
