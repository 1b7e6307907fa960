package record

import (
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// eachUpTo is the largest batch, in bytes before compression, whose events are hashed one
// by one. Larger commits are hashed as records only: under full load, a hash of each event
// would cost the relay some 7 % of its CPU. An event of such a commit is proven with its
// whole record.
const eachUpTo = 128 << 10

// AppendLeaf appends the data of an event's leaf: its CloudEvents id, source, time and
// receivedtime and its body as received, each as a netstring (its length in decimal, ":",
// its bytes, ","). The times are in RFC 3339, in UTC, with as many decimals as are needed.
// Any sink's copy has all of these, unless it redacts.
func AppendLeaf(dst []byte, e *relay.Event) []byte {
	var text [len(time.RFC3339Nano)]byte
	dst = appendNet(dst, e.ID)
	dst = appendNet(dst, e.Source)
	dst = appendNet(dst, e.Time.UTC().AppendFormat(text[:0], time.RFC3339Nano))
	dst = appendNet(dst, e.Received.UTC().AppendFormat(text[:0], time.RFC3339Nano))
	return appendNet(dst, e.Body)
}

func appendNet[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = append(strconv.AppendInt(dst, int64(len(s)), 10), ':')
	return append(append(dst, s...), ',')
}

// LeafOf is the hash of an event's leaf (RFC 6962, section 2.1).
func LeafOf(e *relay.Event) tlog.Hash { return tlog.RecordHash(AppendLeaf(nil, e)) }

// hasher makes the root over the events of a record.
type hasher struct {
	edge   proof.Edge
	data   []byte
	events []relay.Event
}

var hashers = sync.Pool{New: func() any { return new(hasher) }}

func (h *hasher) add(e *relay.Event) {
	h.data = AppendLeaf(append(h.data[:0], 0), e) // RFC 6962 begins a leaf with a zero
	h.edge.Add(sha256.Sum256(h.data))
}

// free gives the memory back, without the events.
func (h *hasher) free() {
	clear(h.events[:cap(h.events)])
	h.edge = proof.Edge{}
	hashers.Put(h)
}
