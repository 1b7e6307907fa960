package eventproof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// ListFormat names the format of a span's list, with its version: JSON lines, first a
// [ListHead], then a [Listed] for each record.
const ListFormat = "auditrelay.span/1"

// ListHead begins a span's list.
type ListHead struct {
	Format string `json:"format"`
	SpanEntry
}

// ParseHead reads the first line of a list.
func ParseHead(line []byte) (h ListHead, err error) {
	if err = strict(line, &h); err == nil && h.Format != ListFormat {
		err = fmt.Errorf("its format is %q, this version reads %q", h.Format, ListFormat)
	}
	if err != nil {
		return h, fmt.Errorf("read the head of the span's list: %w", err)
	}
	return h, nil
}

// Listed is a record of a span. It has its events' hashes and its salt, which give their leaves: see
// [record.Salt].
type Listed struct {
	Position uint64      `json:"position"`
	Hashes   []tlog.Hash `json:"event_hashes,omitempty"`
	Salt     []byte      `json:"salt"`
}

// List calls yield with the lines of the span of an entry. The journal must still have all
// of its records. Whoever has the list can guess at the events: it is as confidential as they are.
func List(ctx context.Context, logs []*journal.Journal, t *audit.Trail, index int64, yield func(line any) error) error {
	e, err := t.Get(ctx, index)
	if err != nil {
		return err
	}
	s, err := spanOf(&e.Entry)
	if err != nil {
		return err
	}
	j, err := logOf(logs, &e.Entry)
	if err != nil {
		return err
	}
	entry, err := entryOf(&e.Entry)
	if err == nil {
		err = yield(ListHead{ListFormat, entry})
	}
	if err != nil {
		return err
	}
	var tree proof.Edge
	var failed error
	err = s.records(ctx, j, func(position uint64, data []byte, d record.Digest) bool {
		tree.Add(Leaf(position, d.Events, d.Root))
		salt := record.SaltOf(data)
		failed = yield(Listed{Position: position, Hashes: hashesOf(data), Salt: salt[:]})
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return s.holds(&tree)
}

// records calls visit with the sound records of the span that the journal still has, until it
// returns false. The root tells of the others, unless the span names them.
func (s *Span) records(ctx context.Context, j *journal.Journal, visit func(position uint64, data []byte, d record.Digest) bool) error {
	return j.Records(ctx, s.First, s.Last+1, func(position uint64, data []byte) bool {
		d, err := record.DigestOf(data)
		return err != nil || s.misses(position) || visit(position, data, d)
	})
}

// holds compares the records with the span.
func (s *Span) holds(tree *proof.Edge) error {
	if n := tree.Len(); n != s.Records {
		return fmt.Errorf("the span from %d to %d has %d records, and %d of them are here: the others are trimmed, or lost", s.First, s.Last, s.Records, n)
	}
	if tree.Root() != s.Root {
		return fmt.Errorf("the records from %d to %d do not give the root in the trail: they were changed", s.First, s.Last)
	}
	return nil
}

// leaf is the record's.
func (l *Listed) leaf() (tlog.Hash, error) {
	salt, err := saltOf(l.Salt)
	if err != nil {
		return tlog.Hash{}, err
	}
	var tree proof.Edge
	for _, leaf := range salt.Leaves(l.Hashes) {
		tree.Add(leaf)
	}
	return Leaf(l.Position, len(l.Hashes), tree.Root()), nil
}

// Compared counts the events of a span found in a copy.
type Compared struct {
	EntryIndex int64  `json:"entry_index"`
	First      uint64 `json:"first_position"`
	Last       uint64 `json:"last_position"`
	Events     int64  `json:"events"` // of the span
	Found      int64  `json:"found"`  // of these, in the copy
	// Absent are the first of the others.
	Absent []Place `json:"absent,omitempty"`
	// Missing are the missing positions named by the span itself.
	Missing []Missing `json:"missing,omitempty"`
}

// Place is an event's: the record's position, and the event's place in the record, from 0.
type Place struct {
	Position uint64 `json:"position"`
	Event    int    `json:"event"`
}

// mostAbsent bounds the named events, and longestLine a line: a record, or an event.
const (
	mostAbsent  = 1000
	longestLine = 64 << 20
)

// Compare holds a copy of events, CloudEvents in JSON lines as the file sink writes them,
// against a span's list. Order, repetitions and other events do not matter. An error
// means unreadable lines, or a list without the root of its entry. check judges the entry
// first.
func Compare(list io.Reader, check func(*ListHead) error, copies ...io.Reader) (c Compared, err error) {
	lines := linesOf(list)
	if !lines.Scan() {
		return c, errors.Join(errors.New("the span's list is empty"), lines.Err())
	}
	head, err := ParseHead(lines.Bytes())
	if err == nil {
		err = check(&head)
	}
	if err != nil {
		return c, err
	}
	s, err := head.span()
	if err != nil {
		return c, err
	}
	c = Compared{EntryIndex: head.EntryIndex, First: s.First, Last: s.Last, Events: s.Events, Missing: s.Missing}
	have := map[tlog.Hash]bool{}
	for i, from := range copies {
		if err := s.gather(from, have); err != nil {
			return c, fmt.Errorf("copy %d: %w", i+1, err)
		}
	}
	return c, s.compare(lines, have, &c)
}

// gather adds the hashes of the events in a copy received during the span.
func (s *Span) gather(from io.Reader, have map[tlog.Hash]bool) error {
	lines := linesOf(from)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := cloudevents.ParseJSON(lines.Bytes())
		if errors.Is(err, cloudevents.ErrAmbiguous) || err == nil && e.ContentType != record.ContentType(e.Body) {
			continue // it was changed
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !e.Received.Before(s.FirstReceived) && !e.Received.After(s.LastReceived) {
			have[record.HashOf(&e)] = true
		}
	}
	return lines.Err()
}

func (s *Span) compare(lines *bufio.Scanner, have map[tlog.Hash]bool, c *Compared) error {
	var tree proof.Edge
	listed := int64(0)
	for lines.Scan() {
		var l Listed
		if err := strict(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("read the span's list: %w", err)
		}
		leaf, err := l.leaf()
		if err != nil {
			return fmt.Errorf("position %d of the span's list: %w", l.Position, err)
		}
		tree.Add(leaf)
		listed += int64(len(l.Hashes))
		for i, hash := range l.Hashes {
			if have[hash] {
				c.Found++
			} else if len(c.Absent) < mostAbsent {
				c.Absent = append(c.Absent, Place{l.Position, i})
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the span's list: %w", err)
	}
	if err := s.holds(&tree); err != nil {
		return err
	}
	if listed != s.Events {
		return fmt.Errorf("the span from %d to %d says that it has %d events, and its records have %d", s.First, s.Last, s.Events, listed)
	}
	return nil
}

func linesOf(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	return lines
}

// strict reads JSON that can be read in one way only. Of two members with one name, or with names that
// differ in their letters' case, another reader may take the other one.
func strict(text []byte, into any) error {
	given, err := jsontext.Canonical(text)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return err
	}
	if read, err := jsontext.Canonical(jsontext.Encode(into)); err != nil || !bytes.Equal(read, given) {
		return errors.New("it has members that this version does not know, lacks some, or spells them in another way than a relay does")
	}
	return nil
}
