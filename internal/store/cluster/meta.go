package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
)

// meta is what the table says about a log.
type meta struct {
	ID logID `json:"id"`
	// Created is when the stream was made whose sequences the turns are about.
	Created int64 `json:"created"`
	// Trimmed is the newest position that [Log.Trim] may have dropped.
	Trimmed store.Pos `json:"trimmed,omitempty"`
	// Turns are what the cluster lost, the oldest first.
	Turns []turn `json:"turns,omitempty"`

	rev uint64 // of the value in the table
}

// turn says that the cluster lost the end of a stream, or that a log that was taken over has a
// gap. After the position After, the next record is the message Seq, or a later one, and its
// position is its sequence plus Shift. The positions between the two are lost.
type turn struct {
	After store.Pos    `json:"after"`
	Seq   uint64       `json:"seq"`
	Shift uint64       `json:"shift"`
	Why   store.Reason `json:"why,omitempty"` // of the gap that was taken over; empty for a loss
}

// first is the first position of the turn.
func (t turn) first() store.Pos { return store.Pos(t.Seq + t.Shift) }

// logID is the random part of a log's id.
type logID [16]byte

// MarshalText implements [encoding.TextMarshaler].
func (id logID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(id[:])), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *logID) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(id)) {
		return errors.New("the id of a log has another length")
	}
	_, err := hex.Decode(id[:], text)
	return err
}

func newID() (id logID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// last is the newest turn.
func (m *meta) last() turn {
	if n := len(m.Turns); n > 0 {
		return m.Turns[n-1]
	}
	return turn{Seq: 1}
}

// end is the position of the end of a stream that ends with a sequence.
func (m *meta) end(lastSeq uint64) store.Pos { return store.Pos(lastSeq + m.last().Shift) }

// split returns the last turn that has begun at a place, and the next one, if there is one. The first
// turn is that of a stream which lost nothing.
func (m *meta) split(hasBegun func(turn) bool) (last turn, next *turn) {
	last = turn{Seq: 1}
	for i := range m.Turns {
		if !hasBegun(m.Turns[i]) {
			return last, &m.Turns[i]
		}
		last = m.Turns[i]
	}
	return last, nil
}

// reach is the newest position that may have its record in a stream that ends with a
// sequence, although it once went further, and perhaps had later turns.
func (m *meta) reach(lastSeq uint64) store.Pos {
	t, next := m.split(func(t turn) bool { return t.Seq <= lastSeq })
	pos := store.Pos(lastSeq + t.Shift)
	if next != nil {
		return min(pos, next.After)
	}
	return pos
}

// pos returns the position of a message. It reports false for a message that the cluster
// stored after the loss of an end, and before the relay noticed that: it was never
// acknowledged, and its position was another's.
func (m *meta) pos(seq uint64) (store.Pos, bool) {
	t, next := m.split(func(t turn) bool { return t.Seq <= seq })
	pos := store.Pos(seq + t.Shift)
	return pos, next == nil || pos <= next.After
}

// place is where a position is to be looked for.
type place struct {
	seq uint64
	// until is the last position of the same turn.
	until store.Pos
	// lost says that there is nothing to look for up to until, and why.
	lost store.Reason
	// by is the newest turn that this is known by.
	by turn
}

func (m *meta) find(pos store.Pos) place {
	t, next := m.split(func(t turn) bool { return t.first() <= pos })
	at := place{seq: uint64(pos) - t.Shift, until: ^store.Pos(0), by: m.last()}
	switch {
	case pos <= m.Trimmed:
		at.seq, at.until, at.lost = 0, m.Trimmed, store.Trimmed
	case next != nil && pos > next.After:
		at.seq, at.until, at.lost = 0, next.first()-1, cmp.Or(next.Why, store.Rewound)
	case next != nil:
		at.until = next.After
	}
	return at
}

// since drops the turns of which everything is trimmed: nobody reads below that mark.
func since(turns []turn, trimmed store.Pos) []turn {
	for len(turns) > 1 && turns[1].first() <= trimmed {
		turns = turns[1:]
	}
	return turns
}

// agrees is the position up to which both say the same.
func (m *meta) agrees(with *meta) store.Pos {
	trimmed := max(m.Trimmed, with.Trimmed) // one of them may have dropped turns already
	here, there, same := since(m.Turns, trimmed), since(with.Turns, trimmed), 0
	for same < min(len(here), len(there)) && here[same] == there[same] {
		same++
	}
	agreed := ^store.Pos(0)
	for _, t := range slices.Concat(here[same:], there[same:]) {
		agreed = min(agreed, t.After)
	}
	return agreed
}

// isOlder reports whether m lacks a turn that another meta of the same stream has. A shift grows with
// each turn, however many earlier turns are lost with it.
func (m *meta) isOlder(than *meta) bool {
	return m.Created == than.Created && m.last().Shift < than.last().Shift
}

// after is the sequence after that of a position which has its record, or is the last of a gap.
func (m *meta) after(pos store.Pos) uint64 {
	t, _ := m.split(func(t turn) bool { return t.first() <= pos+1 })
	return uint64(pos) + 1 - t.Shift
}

// rewind adds a turn: the positions after one are lost, up to end, and the next message is
// seq or a later one. Turns that are lost with them go.
func (m *meta) rewind(after, end store.Pos, seq uint64) {
	for len(m.Turns) > 0 && m.last().first() > after {
		after = min(after, m.last().After)
		m.Turns = m.Turns[:len(m.Turns)-1]
	}
	m.Turns = append(since(m.Turns, m.Trimmed), turn{After: after, Seq: seq, Shift: uint64(end) + 1 - seq})
}

// replaced forgets all turns, since another stream has the log's name: everything up to end
// is lost.
func (m *meta) replaced(end store.Pos, created int64, lastSeq uint64) {
	m.Turns, m.Created = nil, created
	if end > 0 {
		m.Turns = []turn{{Seq: lastSeq + 1, Shift: uint64(end) - min(uint64(end), lastSeq)}}
	}
}

// metaSubject is the subject of a log's meta in the table; users' keys cannot collide with it.
func (l *Log) metaSubject() string { return l.store.table.stream + ".log." + l.stream }

// loadMeta reads the log's meta from the table. It reports false if there is none.
func (l *Log) loadMeta(ctx context.Context) (m meta, ok bool, err error) {
	m.rev, err = l.load(ctx, l.metaSubject(), &m)
	return m, m.rev > 0, err
}

// load reads what the table says of the log. It returns 0 where that is nothing.
func (l *Log) load(ctx context.Context, subject string, into any) (rev uint64, err error) {
	v, err := l.store.table.get(ctx, subject, l.name)
	if err != nil || v.Rev == 0 {
		return 0, err
	}
	if err := json.Unmarshal(v.Data, into); err != nil {
		return 0, fmt.Errorf("read what the table says of the log %s: %w", l.name, err)
	}
	return v.Rev, nil
}

// changeMeta changes the log's meta in the table, whatever others changed meanwhile. A
// crash before the put leaves the old meta; one after it, the new one.
func (l *Log) changeMeta(ctx context.Context, change func(*meta)) error {
	for {
		m, ok, err := l.loadMeta(ctx)
		if err != nil {
			return err
		}
		if !ok || m.isOlder(l.meta()) {
			// The cluster lost the newest value of the table, too: the relay knows better.
			rev := m.rev
			m = *l.meta()
			m.rev, m.Turns = rev, slices.Clone(m.Turns)
		}
		m.Trimmed = max(m.Trimmed, l.meta().Trimmed)
		change(&m)
		data, err := json.Marshal(&m)
		if err != nil {
			return err
		}
		subject := l.metaSubject()
		m.rev, err = l.store.table.put(ctx, put{subject: subject, key: l.name, data: data, guard: subject, rev: m.rev, guarded: true})
		if err == nil {
			for done := false; !done && err == nil; {
				done, err = l.become(l.meta(), &m)
			}
			return err
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
