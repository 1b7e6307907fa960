package record

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/mod/sumdb/tlog"
)

// PushedType begins the types of pushed events. The relay's own events have other types.
const PushedType = "event_log"

// Digest describes a record without its events.
type Digest struct {
	// SHA256 is the hash of the record as stored: header and compressed payload.
	SHA256 [sha256.Size]byte
	Events int
	// Root is that of the Merkle tree (RFC 6962) over the events, in their order: see
	// [AppendLeaf]. It is zero for a large record.
	Root tlog.Hash
	// Pushed: it holds an event other than the relay's own.
	Pushed bool
	// First and Last are the earliest and latest time an event of it was received.
	First, Last time.Time
}

// HasRoot reports whether the events were hashed one by one.
func (d *Digest) HasRoot() bool { return d.Root != tlog.Hash{} }

// Segment is a part of a record in the making: see [Batch.Segment].
type Segment struct {
	Data   []byte
	Events int
}

// DigestOf reads a whole record. Its error wraps ErrCorrupt or ErrVersion.
func DigestOf(rec []byte) (Digest, error) {
	r, err := Open(rec)
	if err != nil {
		return Digest{}, err
	}
	d := Digest{SHA256: sha256.Sum256(rec), Events: r.Events()}
	h := hashers.Get().(*hasher) //nolint:forcetypeassert // the pool has nothing else
	defer h.free()
	each := binary.LittleEndian.Uint32(rec[12:]) <= eachUpTo
	for !r.Done() {
		if h.events, _, err = r.Next(h.events[:0], PieceBytes); err != nil {
			return Digest{}, err
		}
		for i := range h.events {
			d.see(h.events[i].Type, h.events[i].Received)
			if each {
				h.add(&h.events[i])
			}
		}
	}
	if each {
		d.Root = h.edge.Root()
	}
	return d, nil
}

// DigestMade describes a record just made of segments. It looks at the first event of each
// segment only, unless it hashes all: a push has one time of receipt, and the relay's own
// events come alone.
func DigestMade(rec []byte, segments []Segment) Digest {
	d := Digest{SHA256: sha256.Sum256(rec)}
	size := 0
	for _, s := range segments {
		d.peek(s)
		size += len(s.Data)
	}
	if size <= eachUpTo {
		d.hashEach(segments)
	}
	return d
}

// peek looks at a segment's first event.
func (d *Digest) peek(s Segment) {
	d.Events += s.Events
	r := s.decoder()
	r.dry = true
	_, _, _, _ = r.text(), r.text(), r.text(), r.text() // source, project, environment, content type
	received := r.time()
	r.labels(nil)
	_, _ = r.uint32(), r.text() // the number of events, the first one's id
	if kind := r.text(); r.err == nil {
		d.see(kind, received)
	}
}

// decoder reads the segment. Nobody changes it meanwhile.
func (s Segment) decoder() decoder {
	return decoder{rest: unsafe.String(unsafe.SliceData(s.Data), len(s.Data))}
}

func (d *Digest) hashEach(segments []Segment) {
	h := hashers.Get().(*hasher) //nolint:forcetypeassert // the pool has nothing else
	defer h.free()
	for _, s := range segments {
		r := Reader{decoder: s.decoder(), events: s.Events}
		for !r.Done() {
			var err error
			if h.events, _, err = r.Next(h.events[:0], PieceBytes); err != nil {
				return // cannot happen: it was just made
			}
			for i := range h.events {
				h.add(&h.events[i])
			}
		}
	}
	d.Root = h.edge.Root()
}

func (d *Digest) see(kind string, received time.Time) {
	d.Pushed = d.Pushed || strings.HasPrefix(kind, PushedType)
	if d.First.IsZero() || received.Before(d.First) {
		d.First = received
	}
	if received.After(d.Last) {
		d.Last = received
	}
}
