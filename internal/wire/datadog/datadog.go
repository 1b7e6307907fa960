// Package datadog has the codec of Datadog's logs intake: the JSON that
// POST /api/v2/logs and /v1/input take. It knows nothing of HTTP.
//
// # What an event's body is
//
// An entry is an object: "message", some reserved attributes, and others. Where
// "message" is a string that itself holds a JSON object with an "event_id",
// that object is the event, and the body is the message's text. Otherwise the
// body is the entry as it stands in the push, byte for byte.
//
// ddtags, ddsource, hostname, service and status become labels. Where the body
// is the message, so do all other attributes (those that are no strings as JSON),
// so that nothing is lost.
package datadog

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrEmpty says that a push has nothing in it, not even an empty array.
var ErrEmpty = errors.New("the push is empty")

// MaxEventID is the length in bytes that an event_id may have.
const MaxEventID = 256

// Entry is one log.
type Entry struct {
	Time   int64 // Unix nanoseconds, from "timestamp" or "date"
	Timed  bool  // whether it has a time
	Labels []relay.Label
	Body   []byte
}

// Problem is why an entry was left out. Its error shows nothing of it.
type Problem struct {
	Entry int // counted from 1
	Err   error
}

func (p Problem) Error() string { return fmt.Sprintf("entry %d: %v", p.Entry, p.Err) }

// Unwrap gives the cause.
func (p Problem) Unwrap() error { return p.Err }

// Handler takes what the decoder finds, in the order of the push. The entry, and
// all that it points to, holds until the call returns. An error ends the
// decoding, and is what the decoder returns.
type Handler interface {
	Entry(at int, e *Entry) error // at is counted from 1
	Refuse(p Problem) error
}

// view is b as a string that shares its bytes, which must not change for as
// long as it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
