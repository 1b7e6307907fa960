package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// A state is stored once for each resource. If an earlier entry has the same state, as
// the state after it, an entry has the SHA-256 and the earlier entry's index instead. The
// entry referred to has the bytes itself, so each reference takes one read, however often
// a setting went from A to B and back. The earlier entries are found by their
// PreviousIndex, from the newest one on: nothing is kept in memory or read at a start.
//
// Readers put the states back, and the hash proves them. If the entry with the bytes is
// lost, the states referring to it are known by their hashes only; the entries are as
// sound as ever. No new entry refers to it. Looks are compared with the newest entry of a
// resource: if its state is not known, the next look enters the state again, whole. See
// [Entry].Unknown and [Update].

const (
	// referFrom is the smallest state to be stored by reference, in bytes: a reference
	// takes about 100.
	referFrom = 256
	// maxOlder bounds the search for an equal state, in entries of the resource.
	maxOlder = 64
	// maxStates bounds the states remembered in a pass over the trail, in bytes.
	maxStates = 8 << 20
)

// storedOnce replaces the states of e by references to equal ones of its resource, whose
// newest entry is newest. A state not found, for whatever reason, is stored again. Entries
// without a state name the one before them too: see [Backwards].
func (t *Trail) storedOnce(ctx context.Context, e Entry, newest int64) Entry {
	if newest < 0 {
		return e
	}
	if e.PreviousIndex = &newest; len(e.Before) == 0 && len(e.After) == 0 {
		return e
	}
	s := search{trail: t, resource: resourceSubject(t.prefix, e.Project, e.Environment, e.Subject), next: newest}
	if hash, index := s.find(ctx, e.Before); index != nil {
		e.Before, e.BeforeSHA256, e.BeforeIndex = nil, hash, index
	}
	if hash, index := s.find(ctx, e.After); index != nil {
		e.After, e.AfterSHA256, e.AfterIndex = nil, hash, index
	}
	return e
}

// hasAfter reports whether a state is the one after e, known by its hash.
func (e *Entry) hasAfter(state json.RawMessage) bool {
	canonical, err := jsondiff.Canonical(state)
	return err == nil && jsondiff.Hash(canonical) == e.AfterSHA256
}

// search goes over the states of a resource, from the newest on.
type search struct {
	trail    *Trail
	resource string
	next     int64 // the entry to read; -1 at the end
	seen     []storedState
}

// storedState is a state's hash, and the entry with its bytes.
type storedState struct {
	hash  string
	index int64
}

// find gives the hash of a state, and the entry with its bytes; nil for none.
func (s *search) find(ctx context.Context, state json.RawMessage) (hash string, index *int64) {
	if len(state) < referFrom {
		return "", nil
	}
	canonical, err := jsondiff.Canonical(state)
	if err != nil { // the append says so
		return "", nil
	}
	hash = jsondiff.Hash(canonical)
	for i := 0; i < len(s.seen) || s.older(ctx); i++ {
		if s.seen[i].hash == hash && s.isThere(ctx, s.seen[i]) {
			return hash, &s.seen[i].index
		}
	}
	return "", nil
}

// older reads one entry more. A damaged one ends the search.
func (s *search) older(ctx context.Context) bool {
	if s.next < 0 || len(s.seen) == maxOlder {
		return false
	}
	at := s.next
	s.next = -1
	e, err := s.trail.stored(ctx, at)
	if err != nil || e.Unsound || resourceSubject(s.trail.prefix, e.Project, e.Environment, e.Subject) != s.resource {
		return false
	}
	found := storedState{e.AfterSHA256, at}
	if e.AfterIndex != nil {
		found.index = *e.AfterIndex
	} else {
		found.hash = jsondiff.Hash(e.After)
	}
	s.seen = append(s.seen, found)
	for _, previous := range []*int64{e.BeforeIndex, e.PreviousIndex} { // earlier versions wrote the first one only
		if previous != nil && *previous < at {
			s.next = *previous
		}
	}
	return true
}

// isThere reports whether the state can be read.
func (s *search) isThere(ctx context.Context, found storedState) bool {
	e, err := s.trail.stored(ctx, found.index)
	return err == nil && !e.Unsound && jsondiff.Hash(e.After) == found.hash
}

// states puts the states back into the entries of one pass over the trail. It remembers
// the states read or used last: a pass in order reads each entry once.
type states struct {
	// after reads the state after an entry with its bytes; nil where no such entry can be
	// read. Its error is an outage.
	after func(ctx context.Context, index int64) (json.RawMessage, error)
	// young and old are states by entry, old the less recent half; size is young's, in bytes.
	young, old map[int64]json.RawMessage
	size       int
}

// complete puts the states back into e.
func (s *states) complete(ctx context.Context, e *Entry) error {
	if err := s.put(ctx, e, &e.Before, e.BeforeIndex, e.BeforeSHA256); err != nil {
		return fmt.Errorf("read the state before entry %d: %w", e.Index, err)
	}
	return s.completeAfter(ctx, e)
}

// completeAfter puts the state after e back.
func (s *states) completeAfter(ctx context.Context, e *Entry) error {
	if err := s.put(ctx, e, &e.After, e.AfterIndex, e.AfterSHA256); err != nil {
		return fmt.Errorf("read the state after entry %d: %w", e.Index, err)
	}
	if e.AfterIndex == nil {
		s.remember(e.Index, e.After)
	}
	return nil
}

// put reads the state of the entry with the index. It fills place if the hash fits.
func (s *states) put(ctx context.Context, e *Entry, place *json.RawMessage, index *int64, hash string) error {
	if index == nil || *index < 0 || *index >= e.Index { // no entry refers to a later one
		return nil
	}
	state, held := s.young[*index]
	if !held {
		state, held = s.old[*index]
	}
	if !held {
		var err error
		if state, err = s.after(ctx, *index); err != nil {
			return err
		}
	}
	s.remember(*index, state)
	if state != nil && jsondiff.Hash(state) == hash {
		*place = state
	}
	return nil
}

func (s *states) remember(index int64, state json.RawMessage) {
	if _, held := s.young[index]; held || len(state) < referFrom || len(state) > maxStates/2 {
		return
	}
	if s.size += len(state); s.size > maxStates/2 || s.young == nil {
		s.old, s.young, s.size = s.young, map[int64]json.RawMessage{}, len(state)
	}
	s.young[index] = state
}

// states begins a pass.
func (t *Trail) states() *states { return &states{after: t.after} }

// after reads the state after an entry.
func (t *Trail) after(ctx context.Context, index int64) (json.RawMessage, error) {
	return afterOf(t.stored(ctx, index))
}

// afterOf is the state after an entry, nil where the entry cannot be read.
func afterOf(e Recorded, err error) (json.RawMessage, error) {
	if errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged) {
		return nil, nil // `trail verify` names it
	}
	return e.After, err
}
