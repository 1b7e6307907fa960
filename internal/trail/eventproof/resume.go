package eventproof

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// resume opens the span after the newest one in the trail.
func (k *Keeper) resume(ctx context.Context) error {
	first, last, err := k.journal.Ends(ctx)
	if err != nil {
		return err
	}
	e, found, err := k.trail.Last(ctx, Project, "", k.opts.Subject)
	if err != nil {
		return err
	}
	k.due = time.Now().Add(k.opts.Interval)
	if !found {
		k.open = begin(max(first, 1), nil)
	} else if err := k.resumeBehind(ctx, e, first, last); err != nil {
		return err
	}
	k.newest = last
	k.state.Store(&State{Through: k.open.span.Last, Entry: k.open.previous})
	return nil
}

// resumeBehind opens the span after an entry's. If the log of events is another one since
// then, it begins after the newest span whose last record is still there.
func (k *Keeper) resumeBehind(ctx context.Context, e audit.Entry, first, last uint64) error {
	newest, err := spanOf(&e)
	if err != nil {
		return err
	}
	previous, err := previousOf(&e)
	if err != nil {
		return err
	}
	if at := e.Time.Add(k.opts.Interval); at.Before(k.due) {
		k.due = at
	}
	from, err := k.stands(ctx, newest, first, last)
	if err != nil {
		return err
	}
	k.open = begin(from, previous)
	if from <= newest.Last {
		k.open.span.Again = newest.Last
	}
	return nil
}

// stands is the position after the newest span whose last record is in its place, from s
// back. Without one it is the stream's first.
func (k *Keeper) stands(ctx context.Context, s Span, first, last uint64) (uint64, error) {
	for {
		there, err := k.inPlace(ctx, s, first, last)
		if err != nil {
			return 0, err
		}
		if there {
			return s.Last + 1, nil
		}
		if s.Previous == nil {
			return max(first, 1), nil
		}
		e, err := k.trail.Get(ctx, s.Previous.Index)
		if errors.Is(err, audit.ErrMissing) || errors.Is(err, audit.ErrDamaged) {
			return max(first, 1), nil // the trail names it
		}
		if err != nil {
			return 0, fmt.Errorf("read the span before position %d: %w", s.First, err)
		}
		if s, err = spanOf(&e.Entry); err != nil {
			return 0, err
		}
	}
}

// inPlace reports whether the stream has, or had, the last record of a span. A trimmed or
// lost one counts: nothing else has its position.
func (k *Keeper) inPlace(ctx context.Context, s Span, first, last uint64) (bool, error) {
	switch {
	case s.Last > last:
		return false, nil
	case s.Last < first, s.LastLeaf == tlog.Hash{}:
		return true, nil
	}
	same, later := true, error(nil)
	err := k.journal.Records(ctx, s.Last, s.Last+1, func(_ uint64, data []byte) bool {
		d, err := record.DigestOf(data)
		if errors.Is(err, record.ErrVersion) {
			later = fmt.Errorf("position %d: %w", s.Last, err)
		}
		same = err == nil && Leaf(s.Last, d.Events, d.Root) == s.LastLeaf
		return false
	})
	return same, errors.Join(err, later)
}
