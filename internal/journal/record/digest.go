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
	for !r.Done() {
		if h.events, _, err = r.Next(h.events[:0], hashedPiece); err != nil {
			return Digest{}, err
		}
		d.take(h.events, h)
	}
	d.Root = h.edge.Root()
	return d, nil
}

// DigestMade describes a record that was just made, with this content.
func DigestMade(rec []byte, content *Decoded) Digest {
	if content.Large {
		d, _ := DigestOf(rec) // it can be read, since it was just made
		return d
	}
	h := newHasher(SaltOf(rec))
	defer h.free()
	d := Digest{Events: len(content.Events)}
	d.take(content.Events, h)
	d.Root = h.edge.Root()
	return d
}

// hashedPiece bounds the memory of the events that are hashed at a time.
const hashedPiece = 256 << 10

// take takes in events.
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
