// Package move moves everything that a relay keeps from one store to another: from its disk to
// a cluster, or back.
//
// # Positions
//
// A position stays the same, and so does a log's id: the new store takes each log over with
// the positions, times and gaps that it has in the old one (see [store.Taker]). So the
// positions of sinks and followers, the numbers of dead letters, the names in the quarantine,
// the places of the trail's entries and the spans of events in it are copied as they are, and
// mean the same records. What was trimmed is a trimmed gap. Everything else that cannot be
// read is named in the quarantine first, and is a gap at the same positions; if its reason is one
// that the new store cannot note, that reads as damaged. Records that cannot be decoded are
// copied as they are.
//
// # Which place counts
//
// Each of the two stores has a mark in its table, and a relay does not start on a store whose
// mark forbids it:
//
//	old place  new place  counts
//	-          -          the old one
//	leaving    -          the old one
//	leaving    arriving   the old one; everything is copied now
//	left       arriving   the new one
//	left       arrived    the new one, and relays start on it
//
// The mark left is the one that decides, and it is written when everything else is durable.
// Whatever line a kill hits, the same move goes on where it was: the new place knows how far
// each log was copied, and its values are compared with those of the old one. Until left, the
// move can be taken back.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Place is a store that is moved from or to.
type Place struct {
	store.Store
	// Name is for people, and tells the place from others.
	Name string
}

// Options describe a move.
type Options struct {
	From, To Place
	// Keep says how a log of a name is kept.
	Keep func(log string) store.Options
	// Alone returns an error if some relay uses the old place. It is asked once no other one
	// can start on it.
	Alone func(context.Context) error
	// Progress, where set, is told how many records of how many are copied.
	Progress func(done, total uint64)
	// Names is the quarantine of the old place, with a fuse.
	Names *journal.Quarantine
	// Fused says that sinks wait before much damage in the old place, and not only in the new
	// one: then a person has to accept it first. Otherwise they have passed over it already.
	Fused  bool
	Logger *slog.Logger
}

// State is what a mark says about a store.
type State string

// The states of a store that takes part in a move.
const (
	Leaving  State = "leaving"
	Left     State = "left"
	Arriving State = "arriving"
	Arrived  State = "arrived"
)

// Key is the table's key of a store's mark.
const Key = "move"

// mark is the value of the key.
type mark struct {
	State State `json:"state"`
	// Log is the id of the log of events, which tells one relay's journal from another's.
	Log string `json:"log_id"`
	// Other is the name of the other place.
	Other string    `json:"other"`
	Time  time.Time `json:"time"`

	rev uint64
}

// ErrRefused means that the move cannot begin or go on. Nothing was changed.
var ErrRefused = errors.New("the journal is not moved")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

func readMark(ctx context.Context, s store.Store) (m mark, err error) {
	v, err := s.Table().Get(ctx, Key)
	if err == nil && v.Data != nil {
		err = json.Unmarshal(v.Data, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read the mark of a move: %w", err)
	}
	m.rev = v.Rev
	return m, nil
}

// write replaces the mark that was read before.
func (m *mark) write(ctx context.Context, s store.Store) error {
	m.Time = time.Now().UTC()
	data, err := json.Marshal(m)
	if err == nil {
		m.rev, err = s.Table().Put(ctx, Key, data, store.If{Key: Key, Rev: m.rev})
	}
	if err != nil {
		return fmt.Errorf("write the mark of a move: %w", err)
	}
	return nil
}

// ErrElsewhere means that a store has a part in a move, and that no relay may use it.
var ErrElsewhere = errors.New("the journal is not kept here")

// Check returns an error if no relay may start on a store, because of its part in a move:
// [ErrElsewhere].
func Check(ctx context.Context, s store.Store) error {
	m, err := readMark(ctx, s)
	if err != nil {
		return err
	}
	at := m.Time.Format(time.RFC3339)
	switch m.State {
	case Leaving:
		return fmt.Errorf("%w: a move of this journal to %s was begun at %s, and is not finished: run the same 'auditrelay journal move' again, or take it back with --to and the place where the journal is now", ErrElsewhere, m.Other, at)
	case Left:
		return fmt.Errorf("%w: this journal was moved to %s at %s: set journal.url to that place, or move it back with 'auditrelay journal move'", ErrElsewhere, m.Other, at)
	case Arriving:
		return fmt.Errorf("%w: a move to this place from %s was begun at %s, and is not finished: run the same 'auditrelay journal move' again", ErrElsewhere, m.Other, at)
	}
	return nil
}

// Run moves everything from one place to the other, or goes on with the same move.
func Run(ctx context.Context, o Options) error {
	m := &mover{Options: o}
	if err := m.meet(ctx); err != nil {
		return err
	}
	if m.from.State != Left {
		if err := m.bring(ctx); err != nil {
			return err
		}
		m.from.State = Left
		if err := m.from.write(ctx, m.From); err != nil { // from here on the new place counts
			return err
		}
	}
	m.to.State = Arrived
	return m.to.write(ctx, m.To)
}

// mover is one run of a move.
type mover struct {
	Options
	from, to    mark
	done, total uint64
}

// meet reads both marks, and refuses what is not this move.
func (m *mover) meet(ctx context.Context) (err error) {
	if m.from, err = readMark(ctx, m.From); err != nil {
		return err
	}
	if m.to, err = readMark(ctx, m.To); err != nil {
		return err
	}
	id, err := relayOf(ctx, m.From, m.Keep)
	if err != nil {
		return err
	}
	switch from := &m.from; {
	case id == "":
		return refuse("%s has none", m.From.Name)
	case (from.State == Left || from.State == Leaving) && from.Other != m.To.Name:
		return refuse("a move of it to %s was begun at %s", from.Other, from.Time.Format(time.RFC3339))
	case from.State == Arriving:
		return refuse("it is not where it seems to be: a move from %s to %s was begun, and is not finished", from.Other, m.From.Name)
	}
	if err := m.receivable(ctx, id); err != nil {
		return err
	}
	m.from.Log, m.from.Other, m.to.Log, m.to.Other = id, m.To.Name, id, m.From.Name
	return nil
}

// receivable refuses a new place that has something of another relay.
func (m *mover) receivable(ctx context.Context, id string) error {
	to := &m.to
	if to.State != "" && to.Log != id {
		return refuse("%s has the journal of another relay, whose events are in the log %s: it says %s, %s", m.To.Name, to.Log, to.State, to.Other)
	}
	switch to.State {
	case Arriving, Left: // the begin of this move, or the place where the journal was before
		return nil
	case Arrived:
		if m.from.State == Left {
			return nil // only this was left to be done
		}
		return refuse("%s says that the same journal was moved there from %s at %s", m.To.Name, to.Other, to.Time.Format(time.RFC3339))
	case Leaving:
		return refuse("%s says that a move from there to %s was begun at %s", m.To.Name, to.Other, to.Time.Format(time.RFC3339))
	}
	logs, err := m.To.Logs(ctx)
	if err != nil {
		return err
	}
	values, err := m.To.Table().List(ctx, "")
	if err != nil {
		return err
	}
	if len(logs)+len(values) > 0 {
		other, err := relayOf(ctx, m.To, m.Keep)
		return errors.Join(refuse("%s has the journal of another relay (logs %v, events in the log %q, %d values): choose an empty place", m.To.Name, logs, other, len(values)), err)
	}
	return nil
}

// TakeBack ends a move that was begun from a place and is not finished, so that relays start
// there again. It reports whether there is one. What was copied stays where it is, and the same
// move goes on with it.
func TakeBack(ctx context.Context, from store.Store) (other string, begun bool, err error) {
	m, err := readMark(ctx, from)
	if err != nil || m.State != Leaving {
		return "", false, err
	}
	if _, err := from.Table().Put(ctx, Key, nil, store.If{Key: Key, Rev: m.rev}); err != nil {
		return "", false, fmt.Errorf("take a move back: %w", err)
	}
	return m.Other, true, nil
}
