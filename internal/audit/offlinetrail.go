package audit

import (
	"context"
	"errors"
	"fmt"
)

// Offline is a trail without a relay. It checks no signature: see [VerifyOffline].
type Offline struct {
	prefix string
	read   Reader
	get    Getter
	pull   *pull // of Records; nil before its first call
}

// Getter reads the message of one sequence of the entries' stream. found is false where none
// can be read.
type Getter func(ctx context.Context, seq uint64) (m Message, found bool, err error)

// OpenOffline opens the trail of the streams with a prefix.
func OpenOffline(prefix string, read Reader, get Getter) *Offline {
	return &Offline{prefix: prefix, read: read, get: get}
}

// EntriesStream is the name of the entries' stream of a trail with a prefix.
func EntriesStream(prefix string) string { return entriesName(prefix) }

// Get is [Trail.Get].
func (o *Offline) Get(ctx context.Context, index int64) (Recorded, error) {
	c, err := newCodec()
	if err != nil {
		return Recorded{}, err
	}
	defer c.close()
	m, found, err := o.get(ctx, uint64(index)+1)
	if err != nil {
		return Recorded{}, fmt.Errorf("read entry %d: %w", index, err)
	}
	if index < 0 || !found {
		return Recorded{}, fmt.Errorf("%w: entry %d", ErrMissing, index)
	}
	return c.recorded(o.prefix, m)
}

// Tail is [Trail.Tail]. No new entries come.
func (o *Offline) Tail(ctx context.Context, from int64, handle func(Recorded) error, caughtUp func(end int64) error) error {
	end := from
	err := o.each(ctx, from, func(e Recorded) error {
		end = e.Index + 1
		return handle(e)
	})
	if err == nil {
		err = caughtUp(end)
	}
	if err == nil {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// Size is 0: no entry is added while a trail is read offline.
func (o *Offline) Size() int64 { return 0 }

// each calls handle with each readable entry from the index from on, in order.
func (o *Offline) each(ctx context.Context, from int64, handle func(Recorded) error) error {
	c, err := newCodec()
	if err != nil {
		return err
	}
	defer c.close()
	_, err = o.read(ctx, entriesName(o.prefix), func(m Message) error {
		if int64(m.Seq)-1 < from {
			return nil
		}
		e, err := c.recorded(o.prefix, m)
		if err != nil {
			return nil //nolint:nilerr // `journal verify` names it
		}
		return handle(e)
	})
	if err != nil && !errors.Is(err, errEnd) {
		return fmt.Errorf("read audit trail: %w", err)
	}
	return nil
}
