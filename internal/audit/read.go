package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Last returns the newest entry of a resource, and whether there is one.
func (t *Trail) Last(ctx context.Context, project, environment, subject string) (Entry, bool, error) {
	where := resourceSubject(t.prefix, project, environment, subject)
	msg, err := t.entries.GetLastMsgForSubject(ctx, where)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, fmt.Errorf("read newest entry of %s: %w", subject, err)
	}
	e, err := t.decode(msg.Subject, msg.Header, msg.Data, msg.Sequence)
	if err != nil {
		return Entry{}, false, err
	}
	return e, true, nil
}

// Read returns at most limit entries from index from on, fewer or none at the
// trail's end. A missing entry is an error: see [Trail.Verify].
func (t *Trail) Read(ctx context.Context, from int64, limit int) ([]Entry, error) {
	if from < 0 {
		return nil, fmt.Errorf("read audit trail: index %d is negative", from)
	}
	info, err := t.entries.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read audit trail: %w", err)
	}
	var entries []Entry
	for seq := uint64(from) + 1; seq <= info.State.LastSeq && len(entries) < limit; seq++ {
		msg, err := t.entries.GetMsg(ctx, seq)
		if err != nil {
			return entries, fmt.Errorf("read entry %d: %w", seq-1, err)
		}
		e, err := t.decode(msg.Subject, msg.Header, msg.Data, seq)
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// decode reads one message, and holds it against the subject it stands under,
// which no leaf hash covers.
func (t *Trail) decode(subject string, header nats.Header, data []byte, seq uint64) (Entry, error) {
	index := int64(seq) - 1
	record, err := t.codec.unpack(header, data)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
	}
	e, err := decodeRecord(record, index)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if resourceSubject(t.prefix, e.Project, e.Environment, e.Subject) != subject {
		return Entry{}, fmt.Errorf("%w: entry %d stands under %s, which is not its resource", ErrDamaged, index, subject)
	}
	return e, nil
}
