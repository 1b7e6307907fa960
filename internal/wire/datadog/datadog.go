// Package datadog decodes the pushes of Datadog's logs intake: the JSON of POST /api/v2/logs
// and /v1/input. It knows nothing of HTTP.
//
// # An event's body
//
// An entry is an object: "message", some reserved attributes, and others. If "message" is a
// string that contains a JSON object, and this object has an "event_id", the object is the
// event, and the body is the message's text. Otherwise the body is the entry as it is
// written in the push, byte for byte.
//
// ddtags, ddsource, hostname, service and status become labels. If the body is the message,
// so do all other attributes, so that none is lost. Those that are not strings become labels
// as JSON.
package datadog

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrEmpty means that a push has no content, not even an empty array.
var ErrEmpty = errors.New("the push is empty")

// MaxEventID bounds an event_id, in bytes.
const MaxEventID = 256

// Entry is one log.
type Entry struct {
	Time   int64 // Unix nanoseconds, from "timestamp" or "date"
	Timed  bool  // whether it has a time
	Labels []relay.Label
	Body   []byte
}

// Problem is the reason for leaving out an entry. Its error shows nothing of the entry.
type Problem struct {
	Entry int // counted from 1
	Err   error
}

func (p Problem) Error() string { return fmt.Sprintf("entry %d: %v", p.Entry, p.Err) }

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Handler takes what the decoder finds, in the order of the push. The entry, and all memory
// that it refers to, is valid until the call returns. An error ends the decoding, and the
// decoder returns it.
type Handler interface {
	Entry(at int, e *Entry) error // at is counted from 1
	Refuse(p Problem) error
}

// view returns b as a string that shares its bytes, which must not change while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
