// Package labelset collects the labels of a stream or of an entry, up to a
// limit: in a push that compresses well, millions of them cost nothing to send.
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

// MaxEscape is how many bytes of an escaped text stand for one byte at most:
// Go's \U00000041. Text that is longer than MaxEscape times Bytes exceeds the
// limit, and need not be unescaped to know it.
const MaxEscape = 10

// Set is a list of labels; names may repeat. A decoder keeps it for its memory.
type Set struct {
	Labels []relay.Label

	limit Limit
	bytes int
}

// Reset empties the set, which keeps its memory.
func (s *Set) Reset(limit Limit) { s.Labels, s.limit, s.bytes = s.Labels[:0], limit, 0 }

// Add adds a label. Its error says which limit the label exceeds; the label is
// then left out.
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

// Check refuses an escaped text that is too long, whatever it stands for.
func (l Limit) Check(escaped int) error {
	if escaped > MaxEscape*l.Bytes {
		return l.tooLong()
	}
	return nil
}

func (l Limit) tooLong() error {
	return fmt.Errorf("at most %d bytes of labels or attributes are taken", l.Bytes)
}

// maxKept bounds what a decoder in a pool keeps of a set.
const maxKept = 256

// Kept gives the set emptied, without references, and without its memory where
// that is much.
func (s *Set) Kept() Set {
	if cap(s.Labels) > maxKept {
		return Set{}
	}
	clear(s.Labels)
	return Set{Labels: s.Labels[:0]}
}
