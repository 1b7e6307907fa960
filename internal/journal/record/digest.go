package record

import (
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/relay"
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

// DigestMade describes a record that was just made of the batch raw, with this content.
func DigestMade(rec, raw []byte, content *Decoded) Digest {
	h := newHasher(SaltOf(rec))
	defer h.free()
	d := Digest{Events: int(Count(rec))} //nolint:gosec // a record has at most 2^32
	if content.Large {
		_ = d.read(readerOf(raw, d.Events), h) // it can be read, since it was just made
	} else {
		d.take(content.Events, h)
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
		d.take(h.events, h)
	}
	return nil
}

func (d *Digest) take(events []relay.Event, h *hasher) {
	for i := range events {
		e := &events[i]
		h.add(e)
		d.Pushed = d.Pushed || strings.HasPrefix(e.Type, PushedType)
		if d.First.IsZero() || e.Received.Before(d.First) {
			d.First = e.Received
		}
		if e.Received.After(d.Last) {
			d.Last = e.Received
		}
	}
}
