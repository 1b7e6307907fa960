// Package loki decodes the pushes of Loki's push API, POST /loki/api/v1/push: JSON and
// protobuf. It knows nothing of HTTP.
//
// Decoders hand what they find to a [Handler], in one pass, and without allocating for an
// entry. They report a faulty entry to the handler and go on. A fault in the body's structure
// is an error of the whole body.
//
// The formats are those that Loki 3.7 reads (pkg/loghttp, pkg/push). This package is stricter:
// it refuses an entry with invalid UTF-8, or with an escaped half of a surrogate pair, which
// Loki would alter.
package loki

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrNoStreams means that a push has no stream, not even an empty one. Loki answers 422.
var ErrNoStreams = errors.New("the push has no streams")

// Place is a place in a push.
type Place struct {
	Stream int // counted from 1
	Entry  int // counted from 1 within the stream; 0 for the stream itself
}

func (p Place) String() string {
	if p.Entry == 0 {
		return fmt.Sprintf("stream %d", p.Stream)
	}
	return fmt.Sprintf("stream %d, entry %d", p.Stream, p.Entry)
}

// failure is the error of a decoding that ended at p with err. A body without streams has an
// error of its own, and an error of the handler gets no place.
func (p Place) failure(err error, ofHandler bool) error {
	switch {
	case err == nil && p.Stream == 0:
		return ErrNoStreams
	case err != nil && p.Stream > 0 && !ofHandler:
		return fmt.Errorf("%v: %w", p, err)
	}
	return err
}

// Entry is one log line.
type Entry struct {
	Time int64 // Unix nanoseconds
	Line []byte
	Meta []relay.Label // structured metadata
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

// Handler takes a decoder's finds, in the order of the push. They lie in the body:
// strings and slices are valid until the decoder returns, the Entry itself until the call
// returns. An error ends the decoding, and the decoder returns it.
type Handler interface {
	// Stream is called before the entries of a stream.
	Stream(labels []relay.Label) error
	Entry(at Place, e *Entry) error
	// Refuse hears of entries left out. If a whole stream is left out, Stream is not
	// called for it.
	Refuse(p Problem) error
}

// view is b as a string on the same bytes. They must not change while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
