package blockfile

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server/avl"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Summary is what the server has to know of a block to open its stream without
// reading it.
type Summary struct {
	Index       uint32 `json:"block"`
	First, Last uint64 // sequences of messages
	// FirstTime and LastTime are theirs, in ns since 1970.
	FirstTime, LastTime int64
	Messages, Bytes     uint64            // Bytes as they stand in the file
	Subjects            map[string]uint64 // how many messages each has
	Missing             []Run             `json:",omitempty"` // between First and Last
	// Tombstones are messages that were deleted, of this block or an earlier one.
	Tombstones []Run `json:",omitempty"`
}

// Run is a run of sequences, both ends included.
type Run struct{ From, To uint64 }

const (
	// maxSubjects and maxMissing bound a summary. The events' stream has one subject,
	// and misses only what was lost.
	maxSubjects = 64
	maxMissing  = 1 << 20
)

// Summarise makes the summary of a block from its frames, as the server would take
// it: without the damaged stretches, which are taken out, and without the messages
// that deleted names. It returns false for a block that is not plain: where messages
// were erased in their place, or deleted behind others that stand.
//
// A block of tombstones alone has a summary without messages, which ends where
// the tombstones say. Only the newest block may be so: see EncodeIndex.
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
	return &summing{Summary: Summary{Index: index, Subjects: map[string]uint64{}}, deleted: deleted}
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

// add takes a message into account, and returns how many are missing before it.
func (s *Summary) add(f *Frame) (missing uint64) {
	at := f.Time.UnixNano()
	switch {
	case s.Messages == 0:
		s.First, s.FirstTime = f.Seq, at
	case f.Seq > s.Last+1:
		s.Missing = append(s.Missing, Run{s.Last + 1, f.Seq - 1})
		missing = f.Seq - s.Last - 1
	}
	s.Last, s.LastTime = f.Seq, at
	s.Messages++
	s.Bytes += uint64(f.Size)
	s.Subjects[f.Subject]++
	return missing
}

// bury takes a tombstone into account.
func (s *Summary) bury(f *Frame) {
	if s.Messages == 0 && f.Seq >= s.Last {
		s.Last, s.LastTime = f.Seq, f.Time.UnixNano()
	}
	if n := len(s.Tombstones); n > 0 && s.Tombstones[n-1].To+1 == f.Seq {
		s.Tombstones[n-1].To = f.Seq
		return
	}
	s.Tombstones = append(s.Tombstones, Run{f.Seq, f.Seq})
}

// Holds reports whether the block has a message of the sequence.
func (s *Summary) Holds(seq uint64) bool {
	if s.Messages == 0 || seq < s.First || s.Last < seq {
		return false
	}
	return !slices.ContainsFunc(s.Missing, func(r Run) bool { return r.From <= seq && seq <= r.To })
}

// EncodeIndex makes the index.db that nats-server 2.15 would write of these blocks,
// oldest first: of all blocks that the stream has. checksum is the newest one's last.
// It returns false where the blocks contradict each other.
func EncodeIndex(stream string, blocks []Summary, checksum [natsserver.FrameChecksum]byte) ([]byte, bool) {
	total, ok := settle(blocks)
	if !ok {
		return nil, false
	}
	out := []byte{natsserver.IndexMagic, natsserver.IndexVersion}
	out = binary.AppendUvarint(out, total.Messages)
	out = binary.AppendUvarint(out, total.Bytes)
	out = binary.AppendUvarint(out, total.First)
	out = binary.AppendVarint(out, total.FirstTime)
	out = binary.AppendUvarint(out, total.Last)
	out = binary.AppendVarint(out, total.LastTime)
	out = appendSubjects(out, blocks, total.Subjects)
	out = binary.AppendUvarint(out, uint64(len(blocks)))
	for i := range blocks {
		out = blocks[i].append(out, total.FirstTime)
	}
	out = binary.AppendUvarint(out, uint64(blocks[len(blocks)-1].Index))
	out = append(out, checksum[:]...)
	key := natsserver.Key(stream)
	return binary.LittleEndian.AppendUint64(out, highwayhash.Sum64(out, key[:])), true
}

// settle adds the blocks up, and gives a newest block without messages its place
// behind the others.
func settle(blocks []Summary) (total Summary, ok bool) {
	total.Subjects = map[string]uint64{}
	for i := range blocks {
		b := &blocks[i]
		if b.Messages == 0 && (i == 0 || i < len(blocks)-1) {
			return total, false
		}
		if b.Messages == 0 {
			if b.Last < total.Last {
				b.Last, b.LastTime = total.Last, total.LastTime
			}
			b.First = b.Last + 1
		}
		if i > 0 && (b.First <= total.Last || b.Index <= blocks[i-1].Index) {
			return total, false
		}
		if i == 0 {
			total.First, total.FirstTime = b.First, b.FirstTime
		}
		total.Last, total.LastTime = b.Last, b.LastTime
		total.Messages += b.Messages
		total.Bytes += b.Bytes
		for subject, n := range b.Subjects {
			total.Subjects[subject] += n
		}
	}
	return total, len(blocks) > 0
}

// appendSubjects writes how many messages each subject has, and the first and the
// last block with one.
func appendSubjects(out []byte, blocks []Summary, all map[string]uint64) []byte {
	out = binary.AppendUvarint(out, uint64(len(all)))
	for _, subject := range slices.Sorted(maps.Keys(all)) {
		var first, last uint32
		for i := range blocks {
			if blocks[i].Subjects[subject] == 0 {
				continue
			}
			if last = blocks[i].Index; first == 0 {
				first = last
			}
		}
		out = binary.AppendUvarint(out, uint64(len(subject)))
		out = append(out, subject...)
		out = binary.AppendUvarint(out, all[subject])
		out = binary.AppendUvarint(out, uint64(first))
		out = binary.AppendUvarint(out, uint64(last))
	}
	return out
}

// append writes a block's line. Times count from that of the stream's first message.
func (s *Summary) append(out []byte, base int64) []byte {
	var missing avl.SequenceSet
	for _, r := range s.Missing {
		for seq := r.From; seq <= r.To; seq++ {
			missing.Insert(seq)
		}
	}
	out = binary.AppendUvarint(out, uint64(s.Index))
	out = binary.AppendUvarint(out, s.Bytes)
	out = binary.AppendUvarint(out, s.First)
	out = binary.AppendVarint(out, s.FirstTime-base)
	out = binary.AppendUvarint(out, s.Last)
	out = binary.AppendVarint(out, s.LastTime-base)
	out = binary.AppendUvarint(out, uint64(missing.Size()))
	out = binary.AppendUvarint(out, 0) // messages with a time to live
	out = binary.AppendUvarint(out, 0) // messages with a schedule
	if missing.Size() > 0 {
		out = append(out, missing.Encode(nil)...)
	}
	return out
}
