package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"
)

// Checkpoints calls handle with each kept checkpoint from the number from on, in order,
// passing over unreadable ones and bad signatures. A good signature may still be a
// stranger's: see [Trail.Generations]. It calls caughtUp after the last one, now and at each
// later end, and waits for new ones until ctx ends. The errors of both end it.
func (t *Trail) Checkpoints(ctx context.Context, from uint64, handle func(Kept) error, caughtUp func() error) error {
	if err := t.isOpen(); err != nil {
		return err
	}
	return t.follow(ctx, t.checkpoints, max(from, 1), func(m Message) error {
		c, err := kept(*t.fileKey.Load(), m)
		if err != nil {
			return nil //nolint:nilerr // Verify names it
		}
		return handle(c)
	}, func(int64) error { return caughtUp() })
}

// few entries are read one by one: a consumer costs more.
const few = 16

// Records calls handle with the record of each readable entry in [from, to), in order:
// the canonical bytes, for the leaf.
func (t *Trail) Records(ctx context.Context, from, to int64, handle func(index int64, record []byte) error) error {
	if err := t.isOpen(); err != nil {
		return err
	}
	give := func(m Message) error { return t.codec.record(m, handle) }
	if to-from > few {
		err := t.follow(ctx, t.entries, uint64(from)+1, func(m Message) error {
			if int64(m.Seq) > to {
				return errEnd
			}
			return give(m)
		}, func(int64) error { return errEnd })
		if errors.Is(err, errEnd) {
			return nil
		}
		return err
	}
	for index := from; index < to; index++ {
		msg, err := t.entries.GetMsg(ctx, uint64(index)+1)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read entry %d: %w", index, err)
		}
		if err := give(Message{msg.Sequence, msg.Subject, msg.Header, msg.Data}); err != nil {
			return err
		}
	}
	return nil
}

// record hands over the record of a message, if it has a readable one.
func (c *codec) record(m Message, handle func(index int64, record []byte) error) error {
	if m.Header.Get(lostHeader) != "" {
		return nil
	}
	record, err := c.unpack(m.Header, m.Data)
	if err != nil {
		return nil //nolint:nilerr // Verify names it
	}
	return handle(int64(m.Seq)-1, record)
}

// Checkpoints is [Trail.Checkpoints]. No new ones come: caughtUp is called once.
func (o *Offline) Checkpoints(ctx context.Context, from uint64, handle func(Kept) error, caughtUp func() error) error {
	_, err := o.read(ctx, checkpointsName(o.prefix), func(m Message) error {
		c, err := kept(keyPair{}, m)
		if err != nil || c.Seq < from {
			return nil //nolint:nilerr // `journal verify` names it
		}
		return handle(c)
	})
	if err != nil {
		return fmt.Errorf("read audit trail: %w", err)
	}
	return caughtUp()
}

// Records is [Trail.Records]. Calls one behind the other read the files once.
func (o *Offline) Records(ctx context.Context, from, to int64, handle func(index int64, record []byte) error) error {
	c, err := newCodec()
	if err != nil {
		return err
	}
	defer c.close()
	if o.pull == nil || from < o.pull.next {
		o.Close()
		o.pull = newPull(ctx, o)
	}
	for m, ok := o.pull.peek(); ok && int64(m.Seq) <= to; m, ok = o.pull.peek() {
		o.pull.take()
		if int64(m.Seq) <= from {
			continue
		}
		if err := c.record(m, handle); err != nil {
			return err
		}
	}
	if o.pull.err != nil {
		return fmt.Errorf("read audit trail: %w", o.pull.err)
	}
	return nil
}

// Close ends the reading of records.
func (o *Offline) Close() {
	if o.pull != nil {
		o.pull.stop()
		o.pull = nil
	}
}

// pull reads entries one by one.
type pull struct {
	more  func() (Message, bool)
	stop  func()
	ahead *Message // read, and not taken yet
	next  int64    // the index behind the newest taken one
	err   error
}

func newPull(ctx context.Context, o *Offline) *pull {
	p := &pull{}
	p.more, p.stop = iter.Pull(func(yield func(Message) bool) {
		_, err := o.read(ctx, entriesName(o.prefix), func(m Message) error {
			if !yield(m) {
				return errEnd
			}
			return nil
		})
		if !errors.Is(err, errEnd) {
			p.err = err
		}
	})
	return p
}

// peek gives the next entry, until it is taken.
func (p *pull) peek() (Message, bool) {
	if p.ahead == nil {
		m, ok := p.more()
		if !ok {
			return Message{}, false
		}
		p.ahead = &m
	}
	return *p.ahead, true
}

func (p *pull) take() { p.next, p.ahead = int64(p.ahead.Seq), nil }
