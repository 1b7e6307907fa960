package deadletters

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
)

// Letter is an event refused for good by a sink.
type Letter struct {
	Sequence uint64 // its number; a later letter has a greater one
	Sink     string
	Reason   string
	Attempts int
	Time     time.Time // of the refusal
	Event    relay.Event
	// Damage says why the event cannot be read; only its ID is set then.
	Damage string
}

// Filter chooses dead letters; a zero field means any.
type Filter struct {
	Sink        string    `json:"sink,omitempty"`
	Since       time.Time `json:"since,omitzero"`   // refused at or after
	Until       time.Time `json:"until,omitzero"`   // refused before
	Reason      string    `json:"reason,omitempty"` // a part of it, in any case
	ID          string    `json:"id,omitempty"`     // the event's
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Sequence    uint64    `json:"sequence,omitempty"` // just this one
	Through     uint64    `json:"through,omitempty"`  // none after this one
	Limit       int       `json:"limit,omitempty"`    // no more than this many, the oldest
}

// matches ignores Sink, Sequence, Through and Limit: Find has those.
func (f *Filter) matches(l *Letter) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.ID, l.Event.ID) && is(f.Project, l.Event.Project) && is(f.Environment, l.Event.Environment) &&
		(f.Since.IsZero() || !l.Time.Before(f.Since)) &&
		(f.Until.IsZero() || l.Time.Before(f.Until)) &&
		strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason))
}

// Find calls yield with each letter chosen by the filter, oldest first, until it returns
// false. It leaves out letters stored meanwhile.
func (s *Store) Find(ctx context.Context, filter Filter, yield func(Letter) bool) error {
	state, err := s.catchUp(ctx)
	if err != nil {
		return err
	}
	from, to := store.Pos(filter.Sequence), store.Pos(filter.Sequence)
	if filter.Sequence == 0 {
		from, to = 1, state.End
	}
	if filter.Through > 0 {
		to = min(to, store.Pos(filter.Through))
	}
	c := &cursor{s: s, ctx: ctx}
	defer c.close()
	for found := 0; ; {
		e, ok := s.index.next(from, to, func(e *entry) bool { return filter.Sink == "" || e.sink == filter.Sink })
		if !ok {
			return nil
		}
		from = e.id + 1
		r, err := c.record(e)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		letter, err := letterIn(r)
		if err != nil {
			return err
		}
		if !filter.matches(&letter) {
			continue
		}
		if found++; !yield(letter) || found == filter.Limit {
			return nil
		}
	}
}

// Get reads one letter; ok says whether it is there.
func (s *Store) Get(ctx context.Context, number uint64) (l Letter, ok bool, err error) {
	err = s.Find(ctx, Filter{Sequence: number}, func(found Letter) bool {
		l, ok = found, true
		return false
	})
	return l, ok, err
}

// letterIn reads a letter. One whose event cannot be read is shown too.
func letterIn(r *store.Record) (Letter, error) {
	h, event, err := headIn(r)
	if err != nil {
		return Letter{}, err
	}
	l := Letter{Sequence: uint64(h.ID), Sink: strings.Clone(r.Key), Reason: h.Reason, Attempts: h.Attempts, Time: h.Time}
	var events []relay.Event
	opened, err := record.Open(event)
	if err == nil {
		events, _, err = opened.Next(nil, 1)
	}
	switch {
	case err != nil:
		l.Damage = err.Error()
	case opened.Events() != 1:
		l.Damage = fmt.Sprintf("it holds %d events", opened.Events())
	default:
		l.Event = events[0]
		return l, nil
	}
	l.Event.ID = h.Event
	return l, nil
}

// cursor reads letters. Neighbours are read without another search.
type cursor struct {
	s    *Store
	ctx  context.Context
	at   store.Pos // the position that next gives
	next func() (store.Item, error, bool)
	stop func()
}

func (c *cursor) close() {
	if c.stop != nil {
		c.stop()
	}
}

// record reads a letter. It returns nil for one that was removed meanwhile, or lost: then
// its position is named. Where nothing stands, the index may be out of date: another relay may have
// appended the letter again, and trimmed the log.
func (c *cursor) record(e entry) (*store.Record, error) {
	for {
		item, err := c.read(e.pos)
		if err == nil && item.Record != nil {
			return item.Record, nil
		}
		if err == nil {
			_, err = c.s.catchUp(c.ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("read dead letter %d: %w", e.id, err)
		}
		now, found := c.s.index.next(e.id, e.id, func(*entry) bool { return true })
		switch {
		case !found:
			return nil, nil //nolint:nilnil // it was removed
		case now.pos == e.pos:
			c.s.name(c.ctx, *item.Gap)
			c.s.index.forget(e.id, e.pos)
		}
		e = now // it was appended again meanwhile
	}
}

// forget removes a letter that was lost. Unlike one that was removed, it comes back if another relay
// appends it again.
func (x *index) forget(id, pos store.Pos) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, found := x.find(id); found && x.entries[at].pos == pos {
		x.count(&x.entries[at], -1)
		x.entries = slices.Delete(x.entries, at, at+1)
	}
}

// read reads the item at a position. A reader ends where the log did when it was made, so a
// letter that was appended meanwhile takes another one.
func (c *cursor) read(pos store.Pos) (store.Item, error) {
	for made := false; ; made = true {
		if c.at != pos || made {
			c.close()
			c.next, c.stop = iter.Pull2(c.s.letters.Read(c.ctx, pos, false))
			made = true
		}
		item, err, more := c.next()
		switch {
		case err != nil:
			return item, err
		case more && item.Gap != nil:
			c.at = item.Gap.To + 1
			return item, nil
		case more:
			c.at = item.Record.Pos + 1
			return item, nil
		case made:
			return item, fmt.Errorf("the log ends before position %d", pos)
		}
	}
}
