// Package labelset collects the labels of a stream or of an entry, up to a limit: a well
// compressed push can carry millions of them at no cost to its sender.
package labelset

import (
	"fmt"

	"github.com/auditrelay/auditrelay/relay"
)

// Limit bounds a set.
type Limit struct {
	Count int // labels
	Bytes int // of all names and values together
}

// MaxEscape is the most bytes of an escaped text for one byte: Go's \U00000041. A text
// longer than MaxEscape times Bytes exceeds the limit even before unescaping.
const MaxEscape = 10

// Set is a list of labels. Names may repeat. A decoder keeps it to reuse its memory.
type Set struct {
	Labels []relay.Label

	limit Limit
	bytes int
}

// Reset empties the set and keeps its memory.
func (s *Set) Reset(limit Limit) { s.Labels, s.limit, s.bytes = s.Labels[:0], limit, 0 }

// Add adds a label, or leaves it out and returns the limit it exceeds as an error.
func (s *Set) Add(l relay.Label) error {
	if len(s.Labels) >= s.limit.Count {
		return fmt.Errorf("at most %d labels or attributes are taken", s.limit.Count)
	}
	if len(l.Name)+len(l.Value) > s.limit.Bytes-s.bytes {
		return s.limit.tooLong()
	}
	s.bytes += len(l.Name) + len(l.Value)
	s.Labels = append(s.Labels, l)
	return nil
}

// Check refuses an escaped text too long for any meaning.
func (l Limit) Check(escaped int) error {
	if escaped > MaxEscape*l.Bytes {
		return l.tooLong()
	}
	return nil
}

func (l Limit) tooLong() error {
	return fmt.Errorf("at most %d bytes of labels or attributes are taken", l.Bytes)
}

// maxKept bounds a set in a pooled decoder.
const maxKept = 256

// Kept returns the set emptied, without references. It keeps the memory only if there is
// little.
func (s *Set) Kept() Set {
	if cap(s.Labels) > maxKept {
		return Set{}
	}
	clear(s.Labels)
	return Set{Labels: s.Labels[:0]}
}
