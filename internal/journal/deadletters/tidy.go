package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// slack is how much of the log may be dead before letters are appended again. It is as
// large as a segment: what stands in the newest one cannot be dropped.
const slack = 64 << 20

// moveBytes bounds what is appended again at once. Refused events wait meanwhile.
const moveBytes = 1 << 20

func (s *Store) tidySoon() {
	select {
	case s.untidy <- struct{}{}:
	default:
	}
}

// keepTidy tidies up after removals until Close.
func (s *Store) keepTidy() {
	after := int64(0) // what the log took after letters were last appended again
	for {
		select {
		case <-s.untidy:
		case <-s.life.Done():
			return
		}
		if err := s.tidy(s.life, &after); err != nil && s.life.Err() == nil && !errors.Is(err, store.ErrClosed) {
			s.log.Warn("tidying up the dead letters failed; the next removal tries it again", "error", err)
		}
	}
}

// tidy drops what no live letter needs. Where half of the log is dead, it appends the live
// letters again before.
//
// A crash on the way leaves letters that stand in the log twice, under one number, and the
// index counts them once.
func (s *Store) tidy(ctx context.Context, after *int64) error {
	state, err := s.catchUp(ctx)
	if err != nil {
		return err
	}
	live, foreign := s.index.held()
	if foreign {
		return nil
	}
	untidy := state.Bytes-live > max(slack, state.Bytes/2) && state.Bytes > *after+slack
	for from, more := store.Pos(1), untidy; more; {
		if from, more, err = s.move(ctx, from, state.End); err != nil {
			return err
		}
	}
	if oldest := s.index.oldest(); oldest > state.First {
		if err := s.letters.Trim(ctx, oldest); err != nil {
			return fmt.Errorf("drop removed letters: %w", err)
		}
	}
	if untidy {
		state, err = s.letters.State(ctx)
		*after = state.Bytes
	}
	return err
}

// held is how many bytes the live letters take, and whether the log has records that this
// version does not know: nothing may be dropped then.
func (x *index) held() (live int64, foreign bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes, x.foreign
}

// move appends again some of the letters that stand up to a position, with numbers from
// one on, and returns the number to go on with.
//
// The index is up to date while this happens, and the append is conditional on that: so no
// letter that was removed, by this relay or by another one, stands after its removal.
func (s *Store) move(ctx context.Context, from, through store.Pos) (next store.Pos, more bool, err error) {
	s.appending.Lock()
	defer s.appending.Unlock()
	state, err := s.catchUp(ctx)
	if err != nil {
		return from, false, err
	}
	c := &cursor{s: s, ctx: ctx}
	defer c.close()
	var drafts []store.Draft
	next = from
	for size := 0; size < moveBytes && len(drafts) < appendLetters; {
		e, found := s.index.next(next, ^store.Pos(0), func(e *entry) bool { return e.pos <= through })
		if !found {
			break
		}
		next = e.id + 1
		r, err := c.record(e)
		if err != nil {
			return from, false, err
		}
		if r == nil {
			continue
		}
		h, event, err := headIn(r)
		if err != nil {
			return from, false, err
		}
		d, err := draftOf(r.Key, &h, event)
		if err != nil {
			return from, false, err
		}
		drafts, size = append(drafts, d), size+len(d.Data)
	}
	if len(drafts) == 0 {
		return next, next != from, nil
	}
	at, err := s.letters.AppendAt(ctx, state.End, drafts...)
	switch {
	case errors.Is(err, store.ErrConflict):
		return from, true, nil
	case err != nil:
		return from, false, fmt.Errorf("append letters again: %w", err)
	}
	return next, true, s.await(ctx, at+store.Pos(len(drafts))-1)
}
