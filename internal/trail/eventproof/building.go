package eventproof

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// building is a span in the making.
type building struct {
	span     Span
	tree     proof.Edge // over the records
	last     tlog.Hash  // leaf of the newest record; zero where it is missing
	pushed   bool       // it holds an event other than the relay's own
	previous int64      // index of the newest span's entry, -1 for none
}

// begin makes an empty span from a position on.
func begin(from uint64, previous *Previous) building {
	b := building{span: Span{First: from, Last: from - 1, Previous: previous}, previous: -1}
	if previous != nil {
		b.previous = previous.Index
	}
	return b
}

// next is the position after the span.
func (b *building) next() uint64 { return b.span.Last + 1 }

// add takes in the record at next.
func (b *building) add(position uint64, d record.Digest) {
	s := &b.span
	b.last = Leaf(position, d.Events, d.Root)
	b.tree.Add(b.last)
	s.Last = position
	s.Records++
	s.Events += int64(d.Events)
	b.pushed = b.pushed || d.Pushed
	if s.FirstReceived.IsZero() || d.First.Before(s.FirstReceived) {
		s.FirstReceived = d.First
	}
	if d.Last.After(s.LastReceived) {
		s.LastReceived = d.Last
	}
}

// skip passes over the positions before to, without a record. trimmed is the newest
// position trimmed on purpose.
func (b *building) skip(to, trimmed uint64) {
	from := b.next()
	if from >= to {
		return
	}
	b.span.miss(from, min(to-1, trimmed), reasonTrimmed)
	b.span.miss(max(from, trimmed+1), to-1, reasonLost)
	b.span.Last, b.last = to-1, tlog.Hash{}
}

// worth reports whether a span is to be entered.
func (b *building) worth() bool { return b.pushed || len(b.span.Missing) > 0 }

// entry makes the entry of the span as it is.
func (b *building) entry(now time.Time) (*audit.Entry, error) {
	s := b.span
	s.Root, s.LastLeaf = b.tree.Root(), b.last
	detail, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a span: %w", err)
	}
	return &audit.Entry{Type: Type, Project: Project, Subject: Subject, Time: now, Detail: detail}, nil
}
