package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Last returns the newest sound entry of a resource, and whether there is one. A
// damaged entry does not count: the one before it does, with Unsure set. Without any,
// Unsure means there may have been one.
func (t *Trail) Last(ctx context.Context, project, environment, subject string) (Entry, bool, error) {
	if err := t.isOpen(); err != nil {
		return Entry{}, false, err
	}
	e, found, err := t.newest(ctx, resourceSubject(t.prefix, project, environment, subject))
	if err != nil {
		return Entry{}, false, fmt.Errorf("read newest entry of %s: %w", subject, err)
	}
	return e, found, nil
}

// End is the number of entries at the servers, those of other relays too.
func (t *Trail) End(ctx context.Context) (int64, error) {
	if err := t.isOpen(); err != nil {
		return 0, err
	}
	info, err := t.entries.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the end of the audit trail: %w", err)
	}
	return int64(info.State.LastSeq), nil
}

// Newest returns the newest sound entry of each resource with this subject, in any
// project and environment.
func (t *Trail) Newest(ctx context.Context, subject string) ([]Entry, error) {
	if err := t.isOpen(); err != nil {
		return nil, err
	}
	info, err := t.entries.Info(ctx, jetstream.WithSubjectFilter(strings.Join([]string{t.prefix, "audit", "*", "*", token(subject)}, ".")))
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	var entries []Entry
	for _, where := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		e, found, err := t.newest(ctx, where)
		if err != nil {
			return nil, fmt.Errorf("read newest entry of %s: %w", where, err)
		}
		if found {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// newest is Last for a subject. If the server's newest message is not sound, or cannot be
// read, the resource's entries are read from the first.
func (t *Trail) newest(ctx context.Context, where string) (newest Entry, found bool, err error) {
	v := t.view.Load()
	newest.Index = -1
	msg, err := t.entries.GetLastMsgForSubject(ctx, where)
	var api *jetstream.APIError
	none := errors.Is(err, jetstream.ErrMsgNotFound)
	if err != nil && !errors.As(err, &api) && !none {
		return Entry{}, false, err
	}
	if err == nil {
		e, err := t.decode(msg.Subject, msg.Header, msg.Data, msg.Sequence)
		if err == nil && !contains(v.passed, e.Index) {
			newest, found = e, true
		}
	}
	if !found && (len(v.passed) > 0 || !none) {
		if newest, found, err = t.searchNewest(ctx, where, v.passed); err != nil {
			return Entry{}, false, err
		}
	}
	if c, restored := t.newestCopy(where, newest.Index); restored {
		newest, found = c, true
	}
	newest.Unsure = len(v.unsound) > 0 && v.unsound[len(v.unsound)-1].To > newest.Index
	return newest, found, nil
}

// searchNewest reads all entries of a resource.
func (t *Trail) searchNewest(ctx context.Context, where string, bad []span) (newest Entry, found bool, err error) {
	newest.Index = -1
	_, err = scan(ctx, t.entries, where, func(seq uint64, msg jetstream.Msg) error {
		e, err := t.decode(msg.Subject(), msg.Headers(), msg.Data(), seq)
		switch {
		case contains(bad, int64(seq)-1):
		case err != nil:
			t.suspect(err.Error())
		default:
			newest, found = e, true
		}
		return nil
	})
	return newest, found, err
}

// Read returns at most limit entries from index from on, fewer or none at the
// trail's end. A missing entry is an error: see [Trail.Verify].
func (t *Trail) Read(ctx context.Context, from int64, limit int) ([]Entry, error) {
	if from < 0 {
		return nil, fmt.Errorf("read audit trail: index %d is negative", from)
	}
	if err := t.isOpen(); err != nil {
		return nil, err
	}
	info, err := t.entries.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read audit trail: %w", err)
	}
	var entries []Entry
	for seq := uint64(from) + 1; seq <= info.State.LastSeq && len(entries) < limit; seq++ {
		e, err := t.Get(ctx, int64(seq)-1)
		if err != nil {
			return entries, err
		}
		entries = append(entries, e.Entry)
	}
	return entries, nil
}

// decode reads one message of the trail's.
func (t *Trail) decode(subject string, header nats.Header, data []byte, seq uint64) (Entry, error) {
	return t.codec.decode(t.prefix, Message{seq, subject, header, data})
}

// decode reads one message, and holds it against its subject, as no leaf hash covers
// the subject.
func (c *codec) decode(prefix string, m Message) (Entry, error) {
	e, _, err := c.open(prefix, m)
	return e, err
}

// open is decode, and gives the record too.
func (c *codec) open(prefix string, m Message) (Entry, []byte, error) {
	index := int64(m.Seq) - 1
	record, err := c.unpack(m.Header, m.Data)
	if err != nil {
		return Entry{}, nil, fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
	}
	e, err := decodeRecord(record, index)
	if err != nil {
		return Entry{}, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if resourceSubject(prefix, e.Project, e.Environment, e.Subject) != m.Subject {
		return Entry{}, nil, fmt.Errorf("%w: entry %d stands under %s, not under its resource", ErrDamaged, index, m.Subject)
	}
	return e, record, nil
}
