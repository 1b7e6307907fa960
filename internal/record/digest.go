package record

import (
	"crypto/sha256"
	"strings"
	"time"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// PushedType begins the types of pushed events. The relay's own events have other types.
const PushedType = "event_log"

// Digest describes a record without its events.
type Digest struct {
	// SHA256 is the hash of the record as stored: header and compressed payload.
	SHA256 [sha256.Size]byte
	Events int
	// Pushed: it holds an event other than the relay's own.
	Pushed bool
	// First and Last are the earliest and latest time an event of it was received.
	First, Last time.Time
}

// DigestOf reads a whole record. Its error wraps ErrCorrupt or ErrVersion.
func DigestOf(rec []byte) (Digest, error) {
	r, err := Open(rec)
	if err != nil {
		return Digest{}, err
	}
	d := Digest{SHA256: sha256.Sum256(rec), Events: r.Events()}
	var events []relay.Event
	for {
		if events, _, err = r.Next(events[:0], PieceBytes); err != nil {
			return Digest{}, err
		}
		for i := range events {
			d.see(events[i].Type, events[i].Received)
		}
		if r.Done() {
			return d, nil
		}
	}
}

// AddSegment describes a segment of the record in the making: of its events, it looks at
// the first. A push has one time of receipt, and the relay's own events come alone.
func (d *Digest) AddSegment(data []byte, events int) {
	d.Events += events
	// Nobody changes data meanwhile, and nothing of it is kept.
	r := decoder{rest: unsafe.String(unsafe.SliceData(data), len(data)), dry: true}
	_, _, _, _ = r.text(), r.text(), r.text(), r.text() // source, project, environment, content type
	received := r.time()
	r.labels(nil)
	_, _ = r.uint32(), r.text() // the number of events, the first one's id
	if kind := r.text(); r.err == nil {
		d.see(kind, received)
	}
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
