package disk

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A record on disk, in little-endian numbers:
//
//	 0  marker      4 bytes, for finding the next record after damage
//	 4  kind        1
//	 5  zero        1
//	 6  key         2, its length
//	 8  position    8
//	16  time        8, in nanoseconds since 1970
//	24  data        4, its length
//	28  zero        4
//	32  confirmed   8, the position up to which the log was synced before this write
//	40  checksum    8, of the bytes before it and of the offset where they stand
//	48  key, data
//	..  checksum    8, of key and data
const (
	headSize = 48
	sumSize  = 8
)

// marker begins every record. It only speeds up the search; the checksum decides.
var marker = [4]byte{0xA7, 'r', 'e', 0x1C}

// head is the decoded header of a record.
type head struct {
	kind      uint8
	key, data int // lengths
	pos       store.Pos
	time      int64
	confirmed store.Pos
}

// size is what the whole record takes on disk.
func (h *head) size() int64 { return frameSize(h.key, h.data) }

func frameSize(key, data int) int64 { return int64(headSize + key + data + sumSize) }

// appendFrame appends a record without position and checksums, and without a time where that is 0:
// [finish] sets them.
func appendFrame(b []byte, d store.Draft, at int64) []byte {
	var h [headSize]byte
	copy(h[:], marker[:])
	h[4] = d.Kind
	binary.LittleEndian.PutUint16(h[6:], uint16(len(d.Key)))
	binary.LittleEndian.PutUint64(h[16:], uint64(at))
	binary.LittleEndian.PutUint32(h[24:], uint32(len(d.Data)))
	b = append(b, h[:]...)
	b = append(b, d.Key...)
	b = append(b, d.Data...)
	return append(b, make([]byte, sumSize)...)
}

// finish gives the records in b their positions, from first on, a time where they have none, and
// their checksums. They are written at an offset, and are no records anywhere else.
func finish(b []byte, seed uint64, offset int64, first, confirmed store.Pos, at time.Time) {
	for pos := first; len(b) > 0; pos++ {
		binary.LittleEndian.PutUint64(b[8:], uint64(pos))
		if binary.LittleEndian.Uint64(b[16:]) == 0 {
			binary.LittleEndian.PutUint64(b[16:], uint64(at.UnixNano()))
		}
		binary.LittleEndian.PutUint64(b[32:], uint64(confirmed))
		binary.LittleEndian.PutUint64(b[40:], sum(seed^uint64(offset), b[:40]))
		body := headSize + int(binary.LittleEndian.Uint16(b[6:])) + int(binary.LittleEndian.Uint32(b[24:]))
		binary.LittleEndian.PutUint64(b[body:], sum(seed^uint64(pos), b[headSize:body]))
		b = b[body+sumSize:]
		offset += int64(body + sumSize)
	}
}

// parseHead decodes the header that stands at an offset, and reports whether it is one.
func parseHead(b []byte, seed uint64, offset int64) (h head, ok bool) {
	if len(b) < headSize || !bytes.Equal(b[:4], marker[:]) || binary.LittleEndian.Uint64(b[40:]) != sum(seed^uint64(offset), b[:40]) {
		return head{}, false
	}
	return head{
		kind: b[4], key: int(binary.LittleEndian.Uint16(b[6:])), data: int(binary.LittleEndian.Uint32(b[24:])),
		pos: store.Pos(binary.LittleEndian.Uint64(b[8:])), time: int64(binary.LittleEndian.Uint64(b[16:])),
		confirmed: store.Pos(binary.LittleEndian.Uint64(b[32:])),
	}, true
}

// parseBody checks a whole record, as long as its header says, and sets r to it. Key and
// Data refer to b; the key's memory is used again where it is the key of before.
func parseBody(b []byte, h *head, seed uint64, r *store.Record) bool {
	body := b[headSize : len(b)-sumSize]
	if binary.LittleEndian.Uint64(b[len(b)-sumSize:]) != sum(seed^uint64(h.pos), body) {
		return false
	}
	if key := body[:h.key]; r.Key != string(key) {
		r.Key = string(key)
	}
	r.Pos, r.Time, r.Kind, r.Data = h.pos, time.Unix(0, h.time), h.kind, body[h.key:]
	return true
}

func sum(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b)
	return d.Sum64()
}
