package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// A state is stored once: where an entry's state before is the state after of its
// resource's newest entry, the record holds the SHA-256 and the index of that one instead.
// Readers put the state back, and the hash proves it. Where the other entry is lost, the
// state before is not known; the entry itself is as sound as ever.

const (
	// referFrom is the smallest state that is stored by reference, in bytes: a reference
	// takes about 100.
	referFrom = 256
	// maxStates bounds the states that a pass over the trail remembers, in bytes.
	maxStates = 8 << 20
)

// refer replaces the state before by a reference to last, if it is the state after it.
func (e *Entry) refer(last *Entry) {
	if len(e.Before) < referFrom {
		return
	}
	before, err := jsondiff.Canonical(e.Before)
	if err != nil { // the append says so
		return
	}
	after, err := jsondiff.Canonical(last.After)
	if err != nil || string(after) != string(before) {
		return
	}
	index := last.Index
	e.Before, e.BeforeSHA256, e.BeforeIndex = nil, jsondiff.Hash(before), &index
}

// states puts the states before back into the entries of one pass over the trail. It
// remembers the newest state of each resource, so that a pass in order reads each entry
// once.
type states struct {
	// after reads the state after an entry; nil where no such entry can be read. Its error
	// is an outage.
	after  func(ctx context.Context, index int64) (json.RawMessage, error)
	newest map[string]state // by resource
	size   int              // of these, in bytes
}

type state struct {
	index int64
	after json.RawMessage
}

// complete puts the state before back into e, and remembers the state after it.
func (s *states) complete(ctx context.Context, e *Entry) error {
	resource := resourceSubject("", e.Project, e.Environment, e.Subject)
	if e.BeforeIndex != nil && *e.BeforeIndex >= 0 && *e.BeforeIndex < e.Index {
		before := s.newest[resource]
		if before.after == nil || before.index != *e.BeforeIndex {
			var err error
			if before.after, err = s.after(ctx, *e.BeforeIndex); err != nil {
				return fmt.Errorf("read the state before entry %d: %w", e.Index, err)
			}
		}
		if before.after != nil && jsondiff.Hash(before.after) == e.BeforeSHA256 {
			e.Before = before.after
		}
	}
	s.remember(resource, state{e.Index, e.After})
	return nil
}

func (s *states) remember(resource string, now state) {
	if s.newest == nil {
		s.newest = map[string]state{}
	}
	s.size -= len(s.newest[resource].after)
	delete(s.newest, resource)
	if len(now.after) < referFrom || len(now.after) > maxStates {
		return
	}
	for other, old := range s.newest { // any of them: it costs a read
		if s.size+len(now.after) <= maxStates {
			break
		}
		s.size -= len(old.after)
		delete(s.newest, other)
	}
	s.newest[resource] = now
	s.size += len(now.after)
}

// states begins a pass.
func (t *Trail) states() *states { return &states{after: t.after} }

// after reads the state after an entry.
func (t *Trail) after(ctx context.Context, index int64) (json.RawMessage, error) {
	if e, ok := t.fromCopy(index); ok {
		return e.After, nil
	}
	msg, err := t.entries.GetMsg(ctx, uint64(index)+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read entry %d: %w", index, err)
	}
	return t.codec.after(t.prefix, Message{msg.Sequence, msg.Subject, msg.Header, msg.Data}), nil
}

// after is the state after an entry, nil where it cannot be read.
func (c *codec) after(prefix string, m Message) json.RawMessage {
	if m.Header.Get(lostHeader) != "" {
		return nil
	}
	e, err := c.decode(prefix, m)
	if err != nil {
		return nil // `trail verify` names it
	}
	return e.After
}

// after searches an entry's state. It reads the trail up to the entry.
func (o *Offline) after(ctx context.Context, c *codec, index int64) (found json.RawMessage, err error) {
	_, err = o.read(ctx, entriesName(o.prefix), func(m Message) error {
		if int64(m.Seq)-1 < index {
			return nil
		}
		if int64(m.Seq)-1 == index {
			found = c.after(o.prefix, m)
		}
		return errEnd
	})
	if errors.Is(err, errEnd) {
		err = nil
	}
	return found, err
}
