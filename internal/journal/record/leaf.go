package record

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// AppendHashed appends what is hashed of an event: its CloudEvents id, source, type, subject,
// time, project, environment and receivedtime and its body as received, each as a netstring (its
// length in decimal, ":", its bytes, ","). The times are in RFC 3339, in UTC, with as many
// decimals as are needed. An attribute that is not there is empty. Any sink's copy has all of
// these, unless it redacts.
func AppendHashed(dst []byte, e *relay.Event) []byte { return new(clocks).appendHashed(dst, e) }

// clocks format the times of events: many in a row have nearly the same ones.
type clocks struct{ at, received cloudevents.Clock }

func (c *clocks) appendHashed(dst []byte, e *relay.Event) []byte {
	var text [len(time.RFC3339Nano)]byte
	dst = appendNet(dst, e.ID)
	dst = appendNet(dst, e.Source)
	dst = appendNet(dst, e.Type)
	dst = appendNet(dst, e.Subject)
	dst = appendNet(dst, c.at.Append(text[:0], e.Time))
	dst = appendNet(dst, e.Project)
	dst = appendNet(dst, e.Environment)
	dst = appendNet(dst, c.received.Append(text[:0], e.Received))
	return appendNet(dst, e.Body)
}

func appendNet[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = append(strconv.AppendInt(dst, int64(len(s)), 10), ':')
	return append(append(dst, s...), ',')
}

// HashOf returns the SHA-256 of an event, without a salt. Whoever has it can try guesses at the
// event, so it leaves the relay only where all of the event may; see [Salt] for the hash that
// may leave.
func HashOf(e *relay.Event) tlog.Hash { return sha256.Sum256(AppendHashed(nil, e)) }

// hasher makes the root over the events of a record.
type hasher struct {
	salts  eventSalts
	edge   proof.Edge
	clocks clocks
	data   []byte
	events []relay.Event
}

var hashers = sync.Pool{New: func() any { return new(hasher) }}

// newHasher returns a hasher for a record with this salt.
func newHasher(s Salt) *hasher {
	h := hashers.Get().(*hasher) //nolint:forcetypeassert // the pool has nothing else
	h.salts = s.events()
	return h
}

func (h *hasher) add(e *relay.Event) {
	h.data = h.clocks.appendHashed(h.data[:0], e)
	h.edge.Add(h.salts.of(int(h.edge.Len())).Leaf(sha256.Sum256(h.data)))
}

// free gives the memory back, without the events.
func (h *hasher) free() {
	clear(h.events[:cap(h.events)])
	h.edge, h.salts = proof.Edge{}, eventSalts{}
	hashers.Put(h)
}

// The media types of bodies.
const (
	ContentJSON = "application/json"
	ContentText = "text/plain; charset=utf-8"
)

// ContentType returns the media type that each event with this body has, in all of its copies. It
// recognises a JSON object by its first and last byte, and reads nothing between.
func ContentType(body []byte) string {
	if n := len(body); n >= 2 && body[0] == '{' && body[n-1] == '}' {
		return ContentJSON
	}
	body = bytes.TrimSpace(body)
	if n := len(body); n >= 2 && body[0] == '{' && body[n-1] == '}' {
		return ContentJSON
	}
	return ContentText
}
