// Package loki has the codecs of Loki's push API: JSON and protobuf, as
// POST /loki/api/v1/push takes them. It knows nothing of HTTP.
//
// Decoders hand what they find to a [Handler], in one pass, and without
// allocating for an entry. What is wrong with one entry is told to the
// handler, and the decoder goes on; what breaks the body's structure is an
// error of the whole body.
//
// Source: the formats as Loki 3.7 reads them (pkg/loghttp, pkg/push). This
// package is stricter in that an entry whose text is no valid UTF-8, or escapes
// half of a surrogate pair, is refused where Loki alters it.
package loki

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrNoStreams says that a push has no stream in it, not even an empty one.
// Loki answers 422.
var ErrNoStreams = errors.New("the push has no streams")

// Place is where something stands in a push.
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

// Entry is one log line.
type Entry struct {
	Time int64 // Unix nanoseconds
	Line []byte
	Meta []relay.Label // structured metadata
}

// Stream is what the encoders take.
type Stream struct {
	Labels  []relay.Label
	Entries []Entry
}

// Problem is why entries were left out. Its error shows nothing of them.
type Problem struct {
	Place
	Entries int // how many it costs: 1, or all of a stream, which may be 0
	Err     error
}

func (p Problem) Error() string { return p.String() + ": " + p.Err.Error() }

// Unwrap gives the cause.
func (p Problem) Unwrap() error { return p.Err }

// Handler takes what a decoder finds, in the order of the push. What it is
// given lies in the body: strings and slices hold until the decoder returns,
// the Entry itself until the call returns. An error ends the decoding, and is
// what the decoder returns.
type Handler interface {
	// Stream is called before the entries of a stream.
	Stream(labels []relay.Label) error
	Entry(at Place, e *Entry) error
	// Refuse is told of entries that are left out. For a stream that is left
	// out whole, Stream is not called.
	Refuse(p Problem) error
}

// view is b as a string that shares its bytes, which must not change for as
// long as it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
