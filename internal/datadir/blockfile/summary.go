package blockfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Summary is a block's entry in the index: with it, the server opens the stream without
// reading the block.
type Summary struct {
	natsserver.IndexBlock

	Messages uint64
	Subjects map[string]uint64 // how many messages each has
	// Tombstones name deleted messages, of this block or an earlier one.
	Tombstones []natsserver.Run `json:",omitempty"`
}

const (
	// maxSubjects and maxMissing bound a summary. The events' stream has one subject, and
	// misses only lost records.
	maxSubjects = 64
	maxMissing  = 1 << 20
)

// Summarise makes the summary of a block from its frames, as the server takes it:
// without damaged stretches, since mending removes them, and without deleted messages. It
// returns false for a block that is not plain: with messages erased in their place, or
// deleted behind others.
//
// A block of tombstones alone has a summary without messages, with the end named by the
// tombstones. Only the newest block may be so: see EncodeIndex.
func Summarise(index uint32, frames []Frame, deleted func(seq uint64) bool) (Summary, bool) {
	all := newSumming(index, deleted)
	for i := range frames {
		all.take(&frames[i])
	}
	return all.result()
}

// summing makes a summary, frame by frame.
type summing struct {
	Summary
	deleted       func(seq uint64) bool
	missing, gone uint64
	odd           bool // the block is not plain
}

func newSumming(index uint32, deleted func(seq uint64) bool) *summing {
	return &summing{Summary: Summary{IndexBlock: natsserver.IndexBlock{Index: index}, Subjects: map[string]uint64{}}, deleted: deleted}
}

func (s *summing) take(f *Frame) {
	switch {
	case f.Kind == Damaged:
	case f.Kind == Tombstone:
		s.bury(f)
	case f.Kind == Erased:
		s.odd = true
	case s.deleted(f.Seq) && s.Messages == 0:
		s.gone++
	case s.deleted(f.Seq) || s.Messages > 0 && f.Seq <= s.Last:
		s.odd = true
	default:
		s.missing += s.add(f)
	}
}

func (s *summing) result() (Summary, bool) {
	plain := !s.odd && (s.Messages > 0 || s.gone == 0 && len(s.Tombstones) > 0)
	return s.Summary, plain && len(s.Subjects) <= maxSubjects && s.missing <= maxMissing
}

// add counts a message, and returns how many are missing before it.
func (s *Summary) add(f *Frame) (missing uint64) {
	at := f.Time.UnixNano()
	switch {
	case s.Messages == 0:
		s.First, s.FirstTime = f.Seq, at
	case f.Seq > s.Last+1:
		s.Missing = append(s.Missing, natsserver.Run{From: s.Last + 1, To: f.Seq - 1})
		missing = f.Seq - s.Last - 1
	}
	s.Last, s.LastTime = f.Seq, at
	s.Messages++
	s.Bytes += uint64(f.Size)
	s.Subjects[f.Subject]++
	return missing
}

// bury adds a tombstone.
func (s *Summary) bury(f *Frame) {
	if s.Messages == 0 && f.Seq >= s.Last {
		s.Last, s.LastTime = f.Seq, f.Time.UnixNano()
	}
	if n := len(s.Tombstones); n > 0 && s.Tombstones[n-1].To+1 == f.Seq {
		s.Tombstones[n-1].To = f.Seq
		return
	}
	s.Tombstones = append(s.Tombstones, natsserver.Run{From: f.Seq, To: f.Seq})
}

// Holds reports whether the block has a message of the sequence.
func (s *Summary) Holds(seq uint64) bool {
	if s.Messages == 0 || seq < s.First || s.Last < seq {
		return false
	}
	return !slices.ContainsFunc(s.Missing, func(r natsserver.Run) bool { return r.From <= seq && seq <= r.To })
}

// EncodeIndex makes the index.db of all blocks of a stream, oldest first. checksum is the
// newest one's last. It returns false if the blocks contradict each other.
func EncodeIndex(stream string, blocks []Summary, checksum [natsserver.FrameChecksum]byte) ([]byte, bool) {
	x := natsserver.Index{Checksum: checksum, Subjects: subjectsOf(blocks)}
	for i := range blocks {
		if !fits(&x, &blocks[i], i == len(blocks)-1) {
			return nil, false
		}
		x.Last, x.LastTime = blocks[i].Last, blocks[i].LastTime
		x.Messages += blocks[i].Messages
		x.Bytes += blocks[i].Bytes
		x.Blocks = append(x.Blocks, blocks[i].IndexBlock)
	}
	if len(blocks) == 0 {
		return nil, false
	}
	x.First, x.FirstTime = blocks[0].First, blocks[0].FirstTime
	return x.Encode(stream), true
}

// fits reports whether a block may stand behind those of x. It gives a newest block
// without messages its place there.
func fits(x *natsserver.Index, b *Summary, newest bool) bool {
	if b.Messages == 0 {
		if len(x.Blocks) == 0 || !newest {
			return false
		}
		if b.Last < x.Last {
			b.Last, b.LastTime = x.Last, x.LastTime
		}
		b.First = b.Last + 1
	}
	return len(x.Blocks) == 0 || b.First > x.Last && b.Index > x.Blocks[len(x.Blocks)-1].Index
}

// subjectsOf counts each subject's messages, and finds its first and its last block.
func subjectsOf(blocks []Summary) []natsserver.IndexSubject {
	all := map[string]natsserver.IndexSubject{}
	for i := range blocks {
		for name, n := range blocks[i].Subjects {
			s := all[name]
			if s.Messages == 0 {
				s.Name, s.FirstBlock = name, blocks[i].Index
			}
			s.Messages += n
			s.LastBlock = blocks[i].Index
			all[name] = s
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b natsserver.IndexSubject) int { return strings.Compare(a.Name, b.Name) })
}
