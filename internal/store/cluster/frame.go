package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A message's data, in little-endian numbers:
//
//	 0  version     1
//	 1  kind        1
//	 2  key         2, its length
//	 4  time        8, in nanoseconds since 1970
//	12  nonce       8, a random number
//	20  checksum    8, of the stream's name and everything else
//	28  key, data
const (
	headSize     = 28
	frameVersion = 1
	// headerRoom is left for the message's headers and the frame.
	headerRoom = 1 << 10
)

var (
	// errDamaged means that a message is not what was written.
	errDamaged = errors.New("the message has another checksum")
	// ErrVersion means that a message was written by a later version of auditrelay.
	ErrVersion = errors.New("it was written by a later version of auditrelay: run that version, or a later one; nothing was changed")
)

// frame is a decoded message.
type frame struct {
	nonce uint64
	time  int64
	draft store.Draft
}

// encode makes the data of a message in a stream.
func (f *frame) encode(stream string) []byte {
	b := make([]byte, headSize, headSize+len(f.draft.Key)+len(f.draft.Data))
	b[0], b[1] = frameVersion, f.draft.Kind
	binary.LittleEndian.PutUint16(b[2:], uint16(len(f.draft.Key)))
	binary.LittleEndian.PutUint64(b[4:], uint64(f.time))
	binary.LittleEndian.PutUint64(b[12:], f.nonce)
	b = append(b, f.draft.Key...)
	b = append(b, f.draft.Data...)
	binary.LittleEndian.PutUint64(b[20:], checksum(stream, b))
	return b
}

// decode reads the data of a message. The draft's data refers to b.
func decode(stream string, b []byte) (f frame, err error) {
	if len(b) < headSize || binary.LittleEndian.Uint64(b[20:]) != checksum(stream, b) {
		return frame{}, errDamaged
	}
	if b[0] > frameVersion {
		return frame{}, ErrVersion
	}
	key := int(binary.LittleEndian.Uint16(b[2:]))
	if len(b) < headSize+key {
		return frame{}, errDamaged
	}
	return frame{
		nonce: binary.LittleEndian.Uint64(b[12:]), time: int64(binary.LittleEndian.Uint64(b[4:])),
		draft: store.Draft{Kind: b[1], Key: string(b[headSize : headSize+key]), Data: b[headSize+key:]},
	}, nil
}

func (f *frame) record(pos store.Pos) *store.Record {
	return &store.Record{Pos: pos, Time: time.Unix(0, f.time), Draft: f.draft}
}

// checksum is bound to the stream, so that a message copied from another one is damage.
func checksum(stream string, b []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(stream)
	_, _ = d.Write(b[:20])
	_, _ = d.Write(b[headSize:])
	return d.Sum64()
}

// newNonce is a random number for a message, which is also the message's id.
func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
