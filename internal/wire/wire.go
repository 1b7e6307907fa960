// Package wire decodes pushes: those of Loki's push API, POST /loki/api/v1/push, in JSON and in
// protobuf, and those of Datadog's logs intake, POST /api/v2/logs and /v1/input. It knows nothing
// of HTTP.
//
// Decoders hand what they find to a [Handler], in one pass, and without allocating for an
// entry. They report a faulty entry to the handler and go on. A fault in the body's structure
// is an error of the whole body. Labels are bounded, since a well compressed push can carry
// millions of them at no cost to its sender.
//
// # Loki
//
// The formats are those that Loki 3.7 reads (pkg/loghttp, pkg/push). This package is stricter:
// it refuses an entry with invalid UTF-8, or with an escaped half of a surrogate pair, which
// Loki would alter.
//
// # Datadog
//
// An entry is an object: "message", some reserved attributes, and others. If "message" is a
// string that contains a JSON object, and this object has an "event_id", the object is the
// event, and the body is the message's text. Otherwise the body is the entry as it is
// written in the push, byte for byte.
//
// ddtags, ddsource, hostname, service and status become labels. If the body is the message,
// so do all other attributes, so that none is lost. Those that are not strings become labels
// as JSON.
package wire

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrNoStreams means that a push has no stream, not even an empty one. Loki answers 422.
var ErrNoStreams = errors.New("the push has no streams")

// ErrOtherForm means that a push has no stream, and members in its place that may be events of
// another form.
var ErrOtherForm = fmt.Errorf("%w, and other members in their place", ErrNoStreams)

// ErrEmpty means that a push to Datadog's intake has no content, not even an empty array.
var ErrEmpty = errors.New("the push is empty")

// MaxEventID bounds an event_id, in bytes.
const MaxEventID = 256

// Place is a place in a push.
type Place struct {
	Stream int // counted from 1; 0 for Datadog, which has none
	Entry  int // counted from 1 within the stream; 0 for the stream itself
}

func (p Place) String() string {
	switch {
	case p.Entry == 0:
		return fmt.Sprintf("stream %d", p.Stream)
	case p.Stream == 0:
		return fmt.Sprintf("entry %d", p.Entry)
	}
	return fmt.Sprintf("stream %d, entry %d", p.Stream, p.Entry)
}

// Entry is one log line.
type Entry struct {
	Time   int64         // Unix nanoseconds
	Timed  bool          // whether the push gives the time; always for Loki
	Labels []relay.Label // its own, such as structured metadata
	Body   []byte
}

// Problem is the reason to leave out entries. Its error shows nothing of them.
type Problem struct {
	Place
	Entries int // the entries left out: 1, or all of a stream, perhaps 0
	Err     error
}

func (p Problem) Error() string { return p.String() + ": " + p.Err.Error() }

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Handler takes a decoder's finds, in the order of the push. They lie in the body or in the
// decoder's memory. The labels of a stream are valid until the next stream or the decoder's
// return, everything else until the call returns. An error ends the decoding, and the decoder
// returns it.
type Handler interface {
	// Stream is called before the entries of a stream. Datadog's pushes have none.
	Stream(labels []relay.Label) error
	Entry(at Place, e *Entry) error
	// Refuse hears of entries left out. If a whole stream is left out, Stream is not
	// called for it.
	Refuse(p Problem) error
}

// handling passes on to its handler what a decoder finds.
type handling struct {
	h      Handler
	failed bool // the handler has
	at     Place
}

// call returns the handler's error, and remembers it.
func (g *handling) call(err error) error {
	g.failed = err != nil
	return err
}

// refuse reports entries that are left out.
func (g *handling) refuse(entries int, why error) error {
	return g.call(g.h.Refuse(Problem{Place: g.at, Entries: entries, Err: why}))
}

// placed adds to the error of a decoding where it occurred. One of the handler gets no place.
func (g *handling) placed(err error) error {
	if err == nil || g.failed || g.at == (Place{}) {
		return err
	}
	return fmt.Errorf("%v: %w", g.at, err)
}

// loki is what both decoders of Loki's pushes have.
type loki struct {
	handling
	limit        LabelLimit
	labels, meta LabelSet
	entry        Entry
}

// outcome is that of a decoding that ended with err. A body without streams has an error of its
// own.
func (d *loki) outcome(err error) error {
	if err == nil && d.at.Stream == 0 {
		return ErrNoStreams
	}
	return d.placed(err)
}

// kept is what stays in the pool.
func (d *loki) kept() loki { return loki{labels: d.labels.Kept(), meta: d.meta.Kept()} }

// view returns b as a string that shares its bytes, which must not change while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
