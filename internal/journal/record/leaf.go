package record

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strconv"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// HashOf returns the hash of an event, without a salt. Whoever has it can try guesses at the
// event, so it leaves the relay only where all of the event may; see [Salt] for the hash that
// may leave.
//
// It is the SHA-256 of the hash of the event's origin, of its CloudEvents id, type, subject and
// time, each as a netstring (its length in decimal, ":", its bytes, ","), and of its body as
// received. The hash of the origin is the SHA-256 of source, project, environment and
// receivedtime as netstrings: all events of a push have the same one, so that it is made once.
// The times are in RFC 3339, in UTC, with as many decimals as are needed. An attribute that is
// not there is empty. Any sink's copy has all of these, unless it redacts.
func HashOf(e *relay.Event) tlog.Hash {
	h := texts{sha: sha256.New()}
	return h.hash(e)
}

// texts hashes events, of which many in a row have the same origin and nearly the same time.
type texts struct {
	sha          hash.Hash
	at, received cloudevents.Clock
	of           relay.Event // only the attributes of its origin; ID is set if origin is its hash
	origin       tlog.Hash
	data         []byte
	sum          tlog.Hash // here, so that no call allocates
}

func (t *texts) hash(e *relay.Event) tlog.Hash {
	if o := &t.of; o.ID == "" || o.Source != e.Source || o.Project != e.Project || o.Environment != e.Environment || !o.Received.Equal(e.Received) {
		t.of = relay.Event{ID: "known", Source: e.Source, Project: e.Project, Environment: e.Environment, Received: e.Received}
		t.data = appendNet(appendNet(appendNet(t.data[:0], e.Source), e.Project), e.Environment)
		t.data = appendTime(t.data, &t.received, e.Received)
		t.origin = sha256.Sum256(t.data)
	}
	t.data = append(t.data[:0], t.origin[:]...)
	t.data = appendNet(appendNet(appendNet(t.data, e.ID), e.Type), e.Subject)
	t.data = appendTime(t.data, &t.at, e.Time)
	t.sha.Reset()
	_, _ = t.sha.Write(t.data) // a hash takes everything
	_, _ = t.sha.Write(e.Body)
	t.sha.Sum(t.sum[:0])
	return t.sum
}

func appendNet(dst []byte, s string) []byte {
	dst = append(strconv.AppendInt(dst, int64(len(s)), 10), ':')
	return append(append(dst, s...), ',')
}

func appendTime(dst []byte, c *cloudevents.Clock, t time.Time) []byte {
	var text [len(time.RFC3339Nano)]byte
	at := c.Append(text[:0], t)
	dst = append(strconv.AppendInt(dst, int64(len(at)), 10), ':')
	return append(append(dst, at...), ',')
}

// hasher makes the root over the events of a record.
type hasher struct {
	texts
	salts  eventSalts
	edge   proof.Edge
	events []relay.Event
}

var hashers = sync.Pool{New: func() any { return &hasher{texts: texts{sha: sha256.New()}} }}

// newHasher returns a hasher for a record with this salt.
func newHasher(s Salt) *hasher {
	h := hashers.Get().(*hasher) //nolint:forcetypeassert // the pool has nothing else
	h.salts = s.events()
	return h
}

func (h *hasher) add(e *relay.Event) {
	h.edge.Add(h.salts.of(int(h.edge.Len())).Leaf(h.hash(e)))
}

// free gives the memory back, without the events.
func (h *hasher) free() {
	clear(h.events[:cap(h.events)])
	h.edge, h.salts, h.of = proof.Edge{}, eventSalts{}, relay.Event{}
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
	body = bytes.TrimSpace(body)
	if n := len(body); n >= 2 && body[0] == '{' && body[n-1] == '}' {
		return ContentJSON
	}
	return ContentText
}
