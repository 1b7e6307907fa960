// Package record is the form of the journal's records: a [Batch] collects events in it,
// [Append] compresses and seals them, and [Open] reads them back in pieces.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"
)

// A record is one JetStream message of many events:
//
//	offset size
//	0      4    "ARJ1": the magic, with the version as its last byte
//	4      1    codec of the payload: 1 is S2 (a block, not a stream)
//	5      3    zero
//	8      4    number of events, uint32 LE
//	12     4    size of the batch before compression, uint32 LE
//	16     8    xxHash64 of bytes 0 to 15 and of all that follows, uint64 LE
//	24     16   the salt: see Salt
//	40     …    the payload: a batch (see Batch), compressed
const (
	magic      = "ARJ1"
	saltAt     = 24
	headerSize = saltAt + saltSize
	codecS2    = 1
)

// maxRaw bounds the memory that unpack allocates for any record.
const maxRaw = 64 << 20

// ErrCorrupt is wrapped by every error about an unreadable record.
var ErrCorrupt = errors.New("corrupt record")

// Append appends a record of the batch raw with its number of events. Its salt is new, so no
// two records are equal.
func Append(dst, raw []byte, events int) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, codecS2, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(events))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(raw)))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	salt := newSalt()
	dst = append(dst, salt[:]...)
	room := s2.MaxEncodedLen(len(raw))
	if cap(dst)-len(dst) < room {
		dst = append(make([]byte, 0, len(dst)+room), dst...)
	}
	payload := s2.Encode(dst[len(dst):len(dst)+room], raw)
	dst = dst[:len(dst)+len(payload)]
	binary.LittleEndian.PutUint64(dst[start+16:], checksum(dst[start:start+16], dst[start+saltAt:]))
	return dst
}

// checksum is the checksum over the first 16 bytes of a record, and over its salt and payload.
func checksum(head, rest []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head)
	_, _ = d.Write(rest)
	return d.Sum64()
}

// unpack checks a record and returns its batch, decompressed.
func unpack(rec []byte) (raw []byte, events int, err error) {
	if err := checkVersion(rec); err != nil {
		return nil, 0, err
	}
	switch {
	case len(rec) < headerSize:
		return nil, 0, fmt.Errorf("%w: %d bytes are too short for a header", ErrCorrupt, len(rec))
	case string(rec[:4]) != magic:
		return nil, 0, fmt.Errorf("%w: starts with %q, not %q", ErrCorrupt, rec[:4], magic)
	case binary.LittleEndian.Uint64(rec[16:]) != checksum(rec[:16], rec[saltAt:]):
		return nil, 0, fmt.Errorf("%w: checksum differs", ErrCorrupt)
	case rec[4] != codecS2:
		return nil, 0, fmt.Errorf("%w: the payload's codec is %d, this version reads %d", ErrVersion, rec[4], codecS2)
	}
	size := int(binary.LittleEndian.Uint32(rec[12:]))
	events = int(binary.LittleEndian.Uint32(rec[8:]))
	if n, err := s2.DecodedLen(rec[headerSize:]); err != nil || n != size || n > maxRaw || events > n {
		return nil, 0, fmt.Errorf("%w: sizes contradict each other", ErrCorrupt)
	}
	if raw, err = s2.Decode(nil, rec[headerSize:]); err != nil {
		return nil, 0, fmt.Errorf("%w: decompress: %w", ErrCorrupt, err)
	}
	return raw, events, nil
}

// decoder reads a batch. It keeps the first error and then reads nothing.
type decoder struct {
	rest    string
	err     error
	bounded bool // leave out labels beyond the bounds
	cut     int  // how often labels were left out
	dry     bool // only check whether it can be read
}

func (d *decoder) text() string { return d.take(d.uvarint(), "length of a text") }

// take reads the next n bytes. It returns none if there are fewer.
func (d *decoder) take(n uint64, what string) string {
	if n > uint64(len(d.rest)) {
		d.fail(what)
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(bytesOf(d.rest))
	if n <= 0 {
		d.fail("varint")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) time() time.Time {
	s := d.take(8, "time")
	if s == "" {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(bytesOf(s)))).UTC()
}

func (d *decoder) uint32() uint32 {
	s := d.take(4, "count")
	if s == "" {
		return 0
	}
	return binary.LittleEndian.Uint32(bytesOf(s))
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s does not fit", ErrCorrupt, what)
	}
	d.rest = ""
}

// bytesOf returns s as bytes without a copy; nobody may write to them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
