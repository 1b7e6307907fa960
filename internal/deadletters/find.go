package deadletters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// Letter is an event refused for good by a sink.
type Letter struct {
	Sequence uint64 // in the dead letters
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

// matches ignores Limit and Through: Find has those.
func (f *Filter) matches(l *Letter) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.Sink, l.Sink) && is(f.ID, l.Event.ID) &&
		is(f.Project, l.Event.Project) && is(f.Environment, l.Event.Environment) &&
		(f.Sequence == 0 || f.Sequence == l.Sequence) &&
		(f.Since.IsZero() || !l.Time.Before(f.Since)) &&
		(f.Until.IsZero() || l.Time.Before(f.Until)) &&
		strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason))
}

// Find calls yield with each letter chosen by the filter, oldest first, until it returns
// false. It leaves out letters stored meanwhile.
func (s *Store) Find(ctx context.Context, filter Filter, yield func(Letter) bool) error {
	last, err := s.end(ctx, &filter)
	if err != nil {
		return err
	}
	subject, err := s.subjects(ctx, &filter)
	if err != nil {
		return err
	}
	for seq, found := max(1, filter.Sequence), 0; seq <= last; seq++ {
		msg, err := s.next(ctx, seq, subject)
		if err != nil {
			return err
		}
		if msg == nil || msg.Sequence > last {
			return nil
		}
		seq = msg.Sequence
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

// Get reads one letter; ok says whether it is there.
func (s *Store) Get(ctx context.Context, sequence uint64) (l Letter, ok bool, err error) {
	err = s.Find(ctx, Filter{Sequence: sequence}, func(found Letter) bool {
		l, ok = found, true
		return false
	})
	return l, ok, err
}

// end is the newest letter for the filter to choose.
func (s *Store) end(ctx context.Context, f *Filter) (uint64, error) {
	if f.Sequence > 0 {
		return f.Sequence, nil
	}
	info, err := s.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("open the dead letters: %w", err)
	}
	if f.Through > 0 {
		return min(info.State.LastSeq, f.Through), nil
	}
	return info.State.LastSeq, nil
}

// subjects is a filter for the letters' subjects, as narrow as possible. Letters of
// earlier versions stand under the sink's name alone: only the filter for all letters
// takes these together with sized ones.
func (s *Store) subjects(ctx context.Context, f *Filter) (string, error) {
	if f.Sink == "" || f.Sequence > 0 {
		return s.subject + ".>", nil
	}
	unsized := s.subject + "." + f.Sink
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(unsized))
	switch {
	case err != nil:
		return "", fmt.Errorf("open the dead letters: %w", err)
	case info.State.Subjects[unsized] > 0:
		return s.subject + ".>", nil
	}
	return s.ofSink(f.Sink) + ">", nil
}

// next reads the first letter at or after seq whose subject fits, or nil if there is none.
func (s *Store) next(ctx context.Context, seq uint64, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := s.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil //nolint:nilnil // a missing letter is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", seq, err)
	}
	return msg, nil
}

// letterOf reads a letter. A damaged one is shown too: its headers still say whose it is.
func letterOf(msg *jetstream.RawStreamMsg) Letter {
	attempts, _ := strconv.Atoi(msg.Header.Get(headerAttempts))
	l := Letter{
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
		l.Damage = err.Error()
	case r.Events() != 1:
		l.Damage = fmt.Sprintf("it holds %d events", r.Events())
	default:
		l.Event = events[0]
		return l
	}
	l.Event.ID = msg.Header.Get(headerEvent)
	return l
}
