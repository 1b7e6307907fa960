package record

import (
	"strings"
	"time"
	"unsafe"

	"golang.org/x/mod/sumdb/tlog"
)

// PushedType is how the types of pushed events begin. The relay's own events have other types.
const PushedType = "event_log"

// Digest describes a record without its events.
type Digest struct {
	Events int
	// Root is that of the Merkle tree (RFC 6962) over the events, in their order: see
	// [Salt.Leaf].
	Root tlog.Hash
	// Pushed is set if it contains an event that is not the relay's own.
	Pushed bool
	// First and Last are the earliest and latest time at which one of its events was received.
	First, Last time.Time
}

// Segment is a part of a record that is being made: see [Batch.Segment].
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
	h := newHasher(SaltOf(rec))
	defer h.free()
	d := Digest{Events: r.Events()}
	if err := d.read(r, h); err != nil {
		return Digest{}, err
	}
	d.Root = h.edge.Root()
	return d, nil
}

// DigestMade describes a record that was just made of segments.
func DigestMade(rec []byte, segments []Segment) (d Digest) {
	h := newHasher(SaltOf(rec))
	defer h.free()
	for _, s := range segments {
		d.Events += s.Events
		// Nobody changes the segment meanwhile, and it was just made, so it can be read.
		text := unsafe.String(unsafe.SliceData(s.Data), len(s.Data))
		_ = d.read(&Reader{decoder: decoder{rest: text}, events: s.Events}, h)
	}
	d.Root = h.edge.Root()
	return d
}

// hashedPiece bounds the memory of the events that are hashed at a time.
const hashedPiece = 256 << 10

// read takes in the events of a reader.
func (d *Digest) read(r *Reader, h *hasher) (err error) {
	for !r.Done() {
		if h.events, _, err = r.Next(h.events[:0], hashedPiece); err != nil {
			return err
		}
		for i := range h.events {
			d.see(h.events[i].Type, h.events[i].Received)
			h.add(&h.events[i])
		}
	}
	return nil
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
