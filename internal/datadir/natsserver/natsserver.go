// Package natsserver holds everything the relay relies on in the files and the texts of
// the embedded nats-server. The server promises none of it: names of files, the layout of
// a record, keys of checksums, and wordings of errors.
//
// Each reliance has a test with the linked server. An upgrade changing one turns its test
// red. Any [Version] but the known one turns a test red, too: read filestore.go of the new
// version before changing either.
package natsserver

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
)

// Version is the nats-server whose files these are. Servers since 2.2 write the
// same blocks and consumer states.
const Version = "2.15.2"

// Names of files and folders below a stream's folder.
const (
	MessagesDir    = "msgs"     // holds the blocks and IndexFile
	BlockSuffix    = ".blk"     // of N.blk, N counting from 1
	KeySuffix      = ".key"     // of N.key, beside an encrypted block
	IndexFile      = "index.db" // the server's knowledge of the stream at its last write
	ConsumersDir   = "obs"      // holds a folder per consumer
	PositionFile   = "o.dat"    // a consumer's state
	Description    = "meta.inf" // of a stream or a consumer, as JSON
	DescriptionSum = "meta.sum" // its checksum, in hexadecimal digits
	DescriptionKey = "meta.key" // beside an encrypted description
)

// StreamsDir is where a server with the given store directory keeps the streams
// of its only account, a folder each.
func StreamsDir(storeDir string) string { return filepath.Join(storeDir, "jetstream", "$G", "streams") }

// A block is a run of frames, little endian:
//
//	length(4, HeadersBit set where there are headers) sequence(8) time(8, ns since 1970) subjectLength(2)
//	subject [headerLength(4) header] message checksum(8)
//
// The checksum is HighwayHash-64, keyed by [BlockKey], of sequence, time, subject,
// header and message. It does not cover the lengths: a flipped bit in subjectLength moves
// the border between a subject and its message, without a trace.
const (
	FrameHeader   = 22 // bytes before the subject
	FrameChecksum = 8
	FrameMin      = FrameHeader + FrameChecksum
	FrameMax      = 32 << 20 // the server takes a longer one for damage

	HeadersBit   = 1 << 31 // of length
	ErasedBit    = 1 << 63 // of sequence: the place of a deleted message
	TombstoneBit = 1 << 62 // of sequence: a note on the deletion of an earlier message

	// CompressedPrefix begins a compressed block.
	CompressedPrefix = "cmp"
)

// BlockKey is the key of the checksums in a stream's block with this number.
func BlockKey(stream string, number uint32) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, number))
}

// PositionFile begins with a magic byte and a version. Varints follow:
// acknowledged delivery and sequence, delivered delivery and sequence, and how
// many are pending. With pending ones a time follows, and three numbers for each.
// How many are redelivered, and two numbers for each, end the file. It has no checksum.
const (
	PositionMagic   = 22
	PositionVersion = 2
)

// Key is the key of the checksums in IndexFile and DescriptionSum. The name is the
// stream's. For a consumer it is the stream's, a slash, and the consumer's.
func Key(name string) [32]byte { return sha256.Sum256([]byte(name)) }

// Parts of errors without a code of their own.
const (
	// WriteError is in the health report of a stream the server no longer writes to.
	WriteError = "write error"
	// FullError is in the answer to a publish beyond the stream's max_bytes. The code
	// only says the message was not stored.
	FullError = "maximum bytes"
)
