package wire

import (
	"fmt"

	"github.com/auditrelay/auditrelay/relay"
)

// LabelLimit bounds a set.
type LabelLimit struct {
	Count int // labels
	Bytes int // of all names and values together
}

// maxEscape is the most bytes of an escaped text for one byte: Go's \U00000041. A text
// longer than maxEscape times Bytes exceeds the limit even before unescaping.
const maxEscape = 10

// LabelSet is a list of labels. Names may repeat. A decoder keeps it to reuse its memory.
type LabelSet struct {
	Labels []relay.Label

	limit LabelLimit
	bytes int
}

// Reset empties the set and keeps its memory.
func (s *LabelSet) Reset(limit LabelLimit) { s.Labels, s.limit, s.bytes = s.Labels[:0], limit, 0 }

// Add adds a label, or leaves it out and returns the limit it exceeds as an error.
func (s *LabelSet) Add(l relay.Label) error {
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
func (l LabelLimit) Check(escaped int) error {
	if escaped > maxEscape*l.Bytes {
		return l.tooLong()
	}
	return nil
}

func (l LabelLimit) tooLong() error {
	return fmt.Errorf("at most %d bytes of labels or attributes are taken", l.Bytes)
}

// maxKept bounds a set in a pooled decoder.
const maxKept = 256

// Kept returns the set emptied, without references. It keeps the memory only if there is
// little.
func (s *LabelSet) Kept() LabelSet {
	if cap(s.Labels) > maxKept {
		return LabelSet{}
	}
	clear(s.Labels)
	return LabelSet{Labels: s.Labels[:0]}
}
