package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Bounds of what is copied at once, and so of the memory.
const (
	batchRecords = 1000
	batchBytes   = 4 << 20
)

// relayOf is the id of the log of events in a place, or "" where it has none.
func relayOf(ctx context.Context, p Place, keep func(string) store.Options) (string, error) {
	logs, err := p.Logs(ctx)
	if err != nil || !slices.Contains(logs, journal.EventsLog) {
		return "", err
	}
	_, state, err := open(ctx, p, journal.EventsLog, keep(journal.EventsLog))
	return state.ID.String(), err
}

func open(ctx context.Context, p Place, name string, o store.Options) (store.Log, store.State, error) {
	l, err := p.Log(ctx, name, o)
	if err != nil {
		return nil, store.State{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	state, err := l.State(ctx)
	if err != nil {
		return nil, state, fmt.Errorf("%s: read the state of the log %s: %w", p.Name, name, err)
	}
	return l, state, nil
}

// bring writes the first marks, and copies everything.
//
// A crash after the first mark leaves a relay that does not start until the move is finished or
// taken back; one after the second, a new place that takes this journal and no other.
func (m *mover) bring(ctx context.Context) error {
	m.from.State = Leaving
	if err := m.from.write(ctx, m.From); err != nil {
		return err
	}
	err := m.Alone(ctx)
	if err == nil {
		err = m.accepted(ctx)
	}
	if err != nil {
		_, _, failed := TakeBack(ctx, m.From)
		return errors.Join(err, failed)
	}
	m.to.State = Arriving
	if err := m.to.write(ctx, m.To); err != nil {
		return err
	}
	logs, err := m.logs(ctx)
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := m.copyLog(ctx, name); err != nil {
			return fmt.Errorf("move the log %s: %w", name, err)
		}
	}
	if !m.Fused {
		if _, err := m.Names.Accept(ctx); err != nil && !errors.Is(err, journal.ErrNoDamage) {
			return err
		}
	}
	if err := m.copyValues(ctx); err != nil {
		return err
	}
	return m.readBack(ctx, logs)
}

// accepted refuses damage that waits for a person.
func (m *mover) accepted(ctx context.Context) error {
	events, _, err := open(ctx, m.From, journal.EventsLog, m.Keep(journal.EventsLog))
	if err != nil {
		return err
	}
	if err := m.Names.Watch(ctx, journal.EventsLog, events); err != nil {
		return err
	}
	if d := m.Names.Damage(); m.Fused && d.Held {
		return refuse("sinks wait for a person to accept the damage from position %d on: start the relay again, and see 'auditrelay journal accept-damage --help'", d.First)
	}
	return nil
}

// moved are the logs of a place that are moved. Those of shards that are not used any more stay, with
// their values: every sink has had what they hold, and a disk has one log of events.
func moved(ctx context.Context, from Place) ([]string, error) {
	logs, err := from.Logs(ctx)
	return slices.DeleteFunc(logs, func(name string) bool { return journal.IsEvents(name) && name != journal.EventsLog }), err
}

// logs are those that are moved, and how many records there are. The quarantine is the last,
// since the others' gaps are named in it.
func (m *mover) logs(ctx context.Context) ([]string, error) {
	logs, err := moved(ctx, m.From)
	if err != nil {
		return nil, err
	}
	logs = slices.DeleteFunc(logs, func(name string) bool { return name == journal.QuarantineLog })
	logs = append(logs, journal.QuarantineLog)
	for _, name := range logs {
		_, state, err := open(ctx, m.From, name, m.Keep(name))
		if err != nil {
			return nil, err
		}
		m.total += uint64(state.End + 1 - state.First)
	}
	return logs, nil
}

// copyLog copies what the new place lacks of a log.
func (m *mover) copyLog(ctx context.Context, name string) error {
	from, state, err := open(ctx, m.From, name, m.Keep(name))
	if err != nil {
		return err
	}
	if name != journal.EventsLog {
		if err := m.Names.Watch(ctx, name, from); err != nil {
			return err
		}
	}
	keep := m.Keep(name)
	keep.ID = state.ID
	opened, have, err := open(ctx, m.To, name, keep)
	if err != nil {
		return err
	}
	to, ok := opened.(store.Taker)
	if !ok {
		return errors.New("the store cannot take it over")
	}
	if have, err = m.fit(ctx, from, to, state, have); err != nil {
		return err
	}
	c := &copier{mover: m, name: name, from: from, to: to}
	m.done += uint64(have.End + 1 - min(state.First, have.End+1))
	for next := have.End + 1; next <= state.End; next = have.End + 1 {
		if err := c.copy(ctx, next); err != nil {
			return err
		}
		if state, err = from.State(ctx); err != nil { // names were added to the quarantine
			return err
		}
		if have, err = to.State(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fit sees to it that what the new place has of the log is a part of it, up to a position, and
// returns its state. What the old place has trimmed meanwhile is trimmed there, too.
func (m *mover) fit(ctx context.Context, from store.Log, to store.Taker, state, have store.State) (store.State, error) {
	switch same, err := sameAt(ctx, from, to, have.End, &state); {
	case err != nil:
		return have, err
	case have.ID != state.ID, have.End > state.End, !same:
		return have, refuse("%s has other records in the log %s than %s: it was used meanwhile, so empty it and begin again", m.To.Name, have.ID, m.From.Name)
	}
	if have.First >= state.First {
		return have, nil
	}
	// A crash between the two leaves a gap that the next run trims.
	if have.End+1 < state.First {
		if err := to.Pass(ctx, store.Gap{From: have.End + 1, To: state.First - 1, Why: store.Trimmed}); err != nil {
			return have, err
		}
	}
	if err := to.Trim(ctx, state.First); err != nil {
		return have, err
	}
	return to.State(ctx)
}

// sameAt reports whether the new log has the record that the old one has at a position, if it
// still has one there.
func sameAt(ctx context.Context, from, to store.Log, pos store.Pos, state *store.State) (bool, error) {
	if pos < state.First || pos > state.End {
		return true, nil
	}
	a, err := at(ctx, from, pos)
	if err != nil {
		return false, err
	}
	b, err := at(ctx, to, pos)
	if a == nil || b == nil || err != nil {
		return a == nil, err
	}
	return a.Kind == b.Kind && a.Key == b.Key && bytes.Equal(a.Data, b.Data), nil
}

// at is the record at a position, or nil for a gap.
func at(ctx context.Context, l store.Log, pos store.Pos) (*store.Record, error) {
	for item, err := range l.Read(ctx, pos, false) {
		if err != nil || item.Record == nil {
			return nil, err
		}
		r := *item.Record
		r.Data = bytes.Clone(r.Data)
		return &r, nil
	}
	return nil, nil //nolint:nilnil // nothing stands there
}

// copier copies a log.
type copier struct {
	*mover
	name  string
	from  store.Log
	to    store.Taker
	batch []store.Record

	size, largest int // bytes of the batch, and of the largest record in it
}

// copy copies a log from a position on, up to its present end.
func (c *copier) copy(ctx context.Context, next store.Pos) error {
	for item, err := range c.from.Read(ctx, next, false) {
		if err != nil {
			return err
		}
		if item.Gap != nil {
			if err := c.pass(ctx, *item.Gap); err != nil {
				return err
			}
			continue
		}
		r := *item.Record
		r.Data = bytes.Clone(r.Data)
		size := len(r.Key) + len(r.Data)
		if len(c.batch) == batchRecords || c.size+size > batchBytes {
			if err := c.flush(ctx); err != nil {
				return err
			}
		}
		c.batch, c.size, c.largest = append(c.batch, r), c.size+size, max(c.largest, size)
	}
	return c.flush(ctx)
}

// flush gives the batch to the new place.
func (c *copier) flush(ctx context.Context) error {
	if len(c.batch) == 0 {
		return nil
	}
	if err := c.to.Take(ctx, c.batch...); err != nil {
		advice := ""
		switch {
		case errors.Is(err, store.ErrFull):
			advice = "; make room or raise journal.max_bytes, and run the move again"
		case errors.Is(err, store.ErrTooLarge):
			advice = "; raise max_payload of the servers, or for the disk journal.max_bytes, and run the move again"
		}
		return fmt.Errorf("positions %d to %d, of up to %d bytes: %w%s", c.batch[0].Pos, c.batch[len(c.batch)-1].Pos, c.largest, err, advice)
	}
	c.tell(uint64(len(c.batch)))
	clear(c.batch)
	c.batch, c.size, c.largest = c.batch[:0], 0, 0
	return nil
}

// pass names a gap in the old place, and has the new one pass over it. The trail names its own.
func (c *copier) pass(ctx context.Context, gap store.Gap) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	if !isTrail(c.name) {
		if err := c.Names.Name(ctx, c.name, gap); err != nil {
			return err
		}
	}
	gap.Kept = "" // the name has it
	if err := c.to.Pass(ctx, gap); err != nil {
		return err
	}
	c.tell(uint64(gap.To + 1 - gap.From))
	return nil
}

func isTrail(log string) bool { return strings.HasPrefix(log, "trail.") }

func (m *mover) tell(n uint64) {
	m.done += n
	if m.Progress != nil {
		m.Progress(min(m.done, m.total), m.total)
	}
}

// lazyKeys begin the keys whose values are put lazily, by the rooms that have them.
var lazyKeys = []string{"position/"}

// ownKeys begin the keys that are a place's own: marks of a move, what the disk has trimmed of its
// logs, the jobs and heartbeats of the relays on a cluster, and its shards after the first one.
var ownKeys = []string{Key, "log/", "cluster/", "shards", "sink=", "position=", "trim="} // no other key begins so

func begins(key string, with []string) bool {
	return slices.ContainsFunc(with, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// copyValues makes the values of the new place those of the old one. A crash in it leaves some of
// them, and the next run writes the others.
func (m *mover) copyValues(ctx context.Context) error {
	want, err := m.From.Table().List(ctx, "")
	if err != nil {
		return err
	}
	have, err := m.To.Table().List(ctx, "")
	if err != nil {
		return err
	}
	left := map[string][]byte{}
	for _, v := range have {
		left[v.Key] = v.Data
	}
	for _, v := range want {
		if v.Doubtful && !begins(v.Key, ownKeys) {
			m.Logger.Warn("a value of the table may be older than it was, and is moved as it is", "key", v.Key)
		}
		if was, known := left[v.Key]; !known || !bytes.Equal(was, v.Data) {
			if err := m.put(ctx, v.Key, v.Data); err != nil {
				return err
			}
		}
		delete(left, v.Key)
	}
	for key := range left {
		if err := m.put(ctx, key, nil); err != nil {
			return err
		}
	}
	return m.To.Table().Sync(ctx)
}

func (m *mover) put(ctx context.Context, key string, data []byte) (err error) {
	switch table := m.To.Table(); {
	case begins(key, ownKeys):
	case begins(key, lazyKeys):
		err = table.PutLazy(ctx, key, data, store.If{})
	default:
		_, err = table.Put(ctx, key, data, store.If{})
	}
	if err != nil {
		return fmt.Errorf("move the value %s: %w", key, err)
	}
	return nil
}
