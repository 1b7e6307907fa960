package natsserver

import (
	"encoding/binary"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server/avl"
)

// IndexFile begins with a magic byte and a version. Varints follow, in the order of
// [Index.Encode]; sequences, counts and lengths are unsigned, times are signed. It ends
// with the checksum of the newest frame (8) and its own (8, little endian): HighwayHash-64
// of all before, keyed by [Key].
const (
	IndexMagic        = 11
	IndexVersion      = 4 // written by the server
	IndexVersionLeast = 1 // the oldest it reads
)

// Index is the content of IndexFile. With it the server opens a stream without reading
// the blocks.
type Index struct {
	Messages, Bytes uint64 // Bytes as they stand in the blocks
	First, Last     uint64 // sequences
	// FirstTime and LastTime are those of First and Last, in ns since 1970.
	FirstTime, LastTime int64
	Subjects            []IndexSubject // in any order: the server has a tree's
	Blocks              []IndexBlock   // oldest first, at least one
	// Checksum is the newest frame's.
	Checksum [FrameChecksum]byte
}

// IndexSubject is a subject's part of an [Index].
type IndexSubject struct {
	Name                  string
	Messages              uint64
	FirstBlock, LastBlock uint32 // the first and the last with one of the messages
}

// IndexBlock is a block's part of an [Index].
type IndexBlock struct {
	Index       uint32 `json:"block"`
	First, Last uint64 // sequences of messages
	// FirstTime and LastTime are theirs, in ns since 1970.
	FirstTime, LastTime int64
	Bytes               uint64 // as they stand in the file
	Missing             []Run  `json:",omitempty"` // between First and Last
}

// Run is a run of sequences, both ends included.
type Run struct{ From, To uint64 }

// Encode returns the file of a stream, as the server writes it.
func (x *Index) Encode(stream string) []byte {
	out := []byte{IndexMagic, IndexVersion}
	out = binary.AppendUvarint(out, x.Messages)
	out = binary.AppendUvarint(out, x.Bytes)
	out = binary.AppendUvarint(out, x.First)
	out = binary.AppendVarint(out, x.FirstTime)
	out = binary.AppendUvarint(out, x.Last)
	out = binary.AppendVarint(out, x.LastTime)
	out = binary.AppendUvarint(out, uint64(len(x.Subjects)))
	for i := range x.Subjects {
		out = x.Subjects[i].append(out)
	}
	out = binary.AppendUvarint(out, uint64(len(x.Blocks)))
	for i := range x.Blocks {
		out = x.Blocks[i].append(out, x.FirstTime)
	}
	out = binary.AppendUvarint(out, uint64(x.Blocks[len(x.Blocks)-1].Index))
	out = append(out, x.Checksum[:]...)
	key := Key(stream)
	return binary.LittleEndian.AppendUint64(out, highwayhash.Sum64(out, key[:]))
}

func (s *IndexSubject) append(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(s.Name)))
	out = append(out, s.Name...)
	out = binary.AppendUvarint(out, s.Messages)
	out = binary.AppendUvarint(out, uint64(s.FirstBlock))
	return binary.AppendUvarint(out, uint64(s.LastBlock))
}

// append writes times as distances from the stream's first message.
func (b *IndexBlock) append(out []byte, base int64) []byte {
	var missing avl.SequenceSet
	for _, r := range b.Missing {
		for seq := r.From; seq <= r.To; seq++ {
			missing.Insert(seq)
		}
	}
	out = binary.AppendUvarint(out, uint64(b.Index))
	out = binary.AppendUvarint(out, b.Bytes)
	out = binary.AppendUvarint(out, b.First)
	out = binary.AppendVarint(out, b.FirstTime-base)
	out = binary.AppendUvarint(out, b.Last)
	out = binary.AppendVarint(out, b.LastTime-base)
	out = binary.AppendUvarint(out, uint64(missing.Size()))
	out = binary.AppendUvarint(out, 0) // messages with a time to live
	out = binary.AppendUvarint(out, 0) // messages with a schedule
	if missing.Size() > 0 {
		out = append(out, missing.Encode(nil)...)
	}
	return out
}
