package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/relay"
)

// Headers of a dead letter's message; its payload is a record of one event.
const (
	headerSink     = "Auditrelay-Sink"
	headerReason   = "Auditrelay-Reason"
	headerAttempts = "Auditrelay-Attempts"
	headerEvent    = "Auditrelay-Event-Id"
)

// Reject implements relay.DeadLetters: one message for each event, so that each can
// be looked at, delivered again and discarded by itself, and many of them to a sync.
// A crash on the way leaves some of them there; the delivery is then tried again, and
// they stand twice, never not at all. While the sink's letters take all of their
// budget, the error wraps ErrLettersFull, and nothing is kept.
func (j *Journal) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	if err := j.letterRoom(ctx, sink); err != nil {
		return err
	}
	return j.RejectAgain(ctx, sink, rejections)
}

// RejectAgain keeps events that were refused again before their old letters are
// removed. It goes over the budget for that while.
func (j *Journal) RejectAgain(ctx context.Context, sink string, rejections []relay.Rejection) error {
	for len(rejections) > 0 {
		letters := j.letters(sink, rejections)
		if err := j.keepLetters(ctx, letters); err != nil {
			return fmt.Errorf("keep %d dead letters, the first of event %s: %w", len(letters), rejections[0].Event.ID, err)
		}
		rejections = rejections[len(letters):]
	}
	j.conn.Shrunk(j.names.dead) // letters come and go; a look at all blocks costs less than their syncs
	return j.conn.Settle(j.names.dead)
}

// letters makes messages of the first rejections, as many as are stored at once.
func (j *Journal) letters(sink string, rejections []relay.Rejection) []*nats.Msg {
	var letters []*nats.Msg
	size := 0
	for i := range rejections {
		m := j.letter(sink, &rejections[i])
		size += m.Size()
		if i == lettersAtOnce || i > 0 && size > letterBytesAtOnce {
			break
		}
		letters = append(letters, m)
	}
	return letters
}

func (j *Journal) letter(sink string, r *relay.Rejection) *nats.Msg {
	var b record.Batch
	b.AddEvent(&r.Event)
	m := &nats.Msg{Header: nats.Header{}, Data: record.Append(nil, b.Bytes(), b.Len())}
	m.Header.Set(headerSink, sink)
	m.Header.Set(headerReason, streams.HeaderText(r.Reason))
	m.Header.Set(headerAttempts, strconv.Itoa(r.Attempts))
	m.Header.Set(headerEvent, streams.HeaderText(r.Event.ID))
	m.Subject = j.names.letterSubject(sink, m.Size()+letterOverhead)
	return m
}

// letterOverhead is what a letter takes beside its payload and its own headers: its
// subject, the headers of its batch, and the server's frame.
const letterOverhead = 200

// DeadLetter is an event that a sink refused for good.
type DeadLetter struct {
	Sequence uint64 // in the dead letters
	Sink     string
	Reason   string
	Attempts int
	Time     time.Time // when it was refused
	Event    relay.Event
	// Damage says why the event cannot be read; only its ID is set then.
	Damage string
}

// DeadLetters calls yield with each dead letter, oldest first, until it
// returns false.
func (j *Journal) DeadLetters(ctx context.Context, yield func(DeadLetter) bool) error {
	return j.FindDeadLetters(ctx, LetterFilter{}, yield)
}

// LetterFilter says which dead letters are meant; a zero field means any.
type LetterFilter struct {
	Sink        string    `json:"sink,omitempty"`
	Since       time.Time `json:"since,omitzero"`   // refused at or after
	Until       time.Time `json:"until,omitzero"`   // refused before
	Reason      string    `json:"reason,omitempty"` // a part of it, in any case
	ID          string    `json:"id,omitempty"`     // the event's
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Sequence    uint64    `json:"sequence,omitempty"` // just this one
	Through     uint64    `json:"through,omitempty"`  // none that came after this one
	Limit       int       `json:"limit,omitempty"`    // no more than this many, the oldest
}

// matches reports whether d is meant. Limit and Through are the caller's.
func (f *LetterFilter) matches(d *DeadLetter) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.Sink, d.Sink) && is(f.ID, d.Event.ID) &&
		is(f.Project, d.Event.Project) && is(f.Environment, d.Event.Environment) &&
		(f.Sequence == 0 || f.Sequence == d.Sequence) &&
		(f.Since.IsZero() || !d.Time.Before(f.Since)) &&
		(f.Until.IsZero() || d.Time.Before(f.Until)) &&
		strings.Contains(strings.ToLower(d.Reason), strings.ToLower(f.Reason))
}

// subject is what the letters' messages stand under, as far as it is known. Letters of
// earlier versions stand under the sink's name alone, and no one filter takes these and
// those that have their size behind it.
func (j *Journal) subject(ctx context.Context, f *LetterFilter) (string, error) {
	if f.Sink == "" || f.Sequence > 0 {
		return j.names.deadSubject + ".>", nil
	}
	sink := j.names.deadSubject + "." + f.Sink
	info, err := j.dead.Info(ctx, jetstream.WithSubjectFilter(sink))
	switch {
	case err != nil:
		return "", fmt.Errorf("open the dead letters: %w", err)
	case info.State.Subjects[sink] > 0:
		return j.names.deadSubject + ".>", nil
	}
	return sink + ".>", nil
}

// end is the newest letter that filter may mean.
func (j *Journal) end(ctx context.Context, f *LetterFilter) (uint64, error) {
	if f.Sequence > 0 {
		return f.Sequence, nil
	}
	info, err := j.dead.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("open the dead letters: %w", err)
	}
	if f.Through > 0 {
		return min(info.State.LastSeq, f.Through), nil
	}
	return info.State.LastSeq, nil
}

// FindDeadLetters calls yield with each dead letter that filter means, oldest
// first, until it returns false. Those that come while it runs are left out.
func (j *Journal) FindDeadLetters(ctx context.Context, filter LetterFilter, yield func(DeadLetter) bool) error {
	last, err := j.end(ctx, &filter)
	if err != nil {
		return err
	}
	subject, err := j.subject(ctx, &filter)
	if err != nil {
		return err
	}
	next := jetstream.WithGetMsgSubject(subject)
	for seq, found := max(1, filter.Sequence), 0; seq <= last; seq++ {
		msg, err := j.dead.GetMsg(ctx, seq, next)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read dead letter %d: %w", seq, err)
		}
		if seq = msg.Sequence; seq > last {
			return nil
		}
		letter := letterOf(msg)
		if !filter.matches(&letter) {
			continue
		}
		if found++; !yield(letter) || found == filter.Limit {
			return nil
		}
	}
	return nil
}

// letterOf reads a dead letter. One that cannot be read is not held back: its
// headers still say whose it is.
func letterOf(msg *jetstream.RawStreamMsg) DeadLetter {
	attempts, _ := strconv.Atoi(msg.Header.Get(headerAttempts))
	d := DeadLetter{
		Sequence: msg.Sequence, Sink: msg.Header.Get(headerSink), Reason: msg.Header.Get(headerReason),
		Attempts: attempts, Time: msg.Time,
	}
	var events []relay.Event
	r, err := record.Open(msg.Data)
	if err == nil {
		events, _, err = r.Next(nil, 1)
	}
	switch {
	case err != nil:
		d.Damage = err.Error()
	case r.Events() != 1:
		d.Damage = fmt.Sprintf("it holds %d events", r.Events())
	default:
		d.Event = events[0]
		return d
	}
	d.Event.ID = msg.Header.Get(headerEvent)
	return d
}

// DeadLetter reads one dead letter; ok says whether it is there.
func (j *Journal) DeadLetter(ctx context.Context, sequence uint64) (d DeadLetter, ok bool, err error) {
	err = j.FindDeadLetters(ctx, LetterFilter{Sequence: sequence}, func(found DeadLetter) bool {
		d, ok = found, true
		return false
	})
	return d, ok, err
}

// RemoveDeadLetter takes a letter away, for good; one that is gone already is
// no error. A crash may bring it back, until the server has synced.
func (j *Journal) RemoveDeadLetter(ctx context.Context, sequence uint64) error {
	err := j.dead.DeleteMsg(ctx, sequence)
	if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if _, ok, readErr := j.DeadLetter(ctx, sequence); readErr == nil && !ok {
		return nil // the server has several words for a letter that is gone
	}
	return fmt.Errorf("remove dead letter %d: %w", sequence, err)
}

// worthPurge is how many letters are removed at once rather than one by one, each of
// which costs a sync.
const worthPurge = 16

// RemoveDeadLetters takes letters of one sink away, for good; sequences ascend. Where
// they are all of the sink's letters up to the last of them, that costs a handful of
// syncs. A crash on the way leaves some of them, or brings them back until the server
// has synced.
func (j *Journal) RemoveDeadLetters(ctx context.Context, sink string, sequences []uint64) error {
	if len(sequences) >= worthPurge {
		whole, err := j.areOldest(ctx, sink, sequences)
		if err != nil {
			return err
		}
		if whole {
			subject, behind := j.names.deadSubject+"."+sink+".>", sequences[len(sequences)-1]+1
			if err := j.dead.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(behind)); err != nil {
				return fmt.Errorf("remove %d dead letters: %w", len(sequences), err)
			}
			return nil
		}
	}
	for _, sequence := range sequences {
		if err := j.RemoveDeadLetter(ctx, sequence); err != nil {
			return err
		}
	}
	return nil
}

// areOldest reports whether each letter of the sink, up to the last of sequences, is
// among them: it reads them all, as nothing else may be removed with them.
func (j *Journal) areOldest(ctx context.Context, sink string, sequences []uint64) (bool, error) {
	subject, err := j.subject(ctx, &LetterFilter{Sink: sink})
	if err != nil || subject != j.names.deadSubject+"."+sink+".>" {
		return false, err
	}
	last, from := sequences[len(sequences)-1], uint64(1)
	for {
		msg, err := j.dead.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Sequence > last {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read dead letter %d: %w", from, err)
		}
		if _, found := slices.BinarySearch(sequences, msg.Sequence); !found {
			return false, nil
		}
		from = msg.Sequence + 1
	}
}
