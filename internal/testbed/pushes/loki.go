// Package pushes makes bodies of the push APIs: Loki's JSON and protobuf, and Datadog's JSON.
package pushes

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// The fields of logproto's messages.
const (
	fieldStreams = 1 // PushRequest

	fieldLabels  = 1 // StreamAdapter
	fieldEntries = 2

	fieldTimestamp = 1 // EntryAdapter
	fieldLine      = 2
	fieldMeta      = 3

	fieldSeconds = 1 // google.protobuf.Timestamp
	fieldNanos   = 2

	fieldName  = 1 // LabelPairAdapter
	fieldValue = 2
)

// nameEnds cannot be in a label's name without quotes.
const nameEnds = "= \t\n\v\f\r,{}\"'`\u0085\u00a0"

// Stream is one of Loki's streams.
type Stream struct {
	Labels  []relay.Label
	Entries []Entry
}

// Entry is one log line.
type Entry struct {
	Time int64 // Unix nanoseconds
	Line []byte
	Meta []relay.Label // structured metadata
}

// Loki appends streams as a push body in JSON. It fails for text in invalid UTF-8: JSON
// cannot carry it. The error names the stream and the entry.
func Loki(dst []byte, streams []Stream) ([]byte, error) {
	var err error
	dst = append(dst, `{"streams":[`...)
	for i, s := range streams {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"stream":`...)
		if dst, err = appendPairs(dst, s.Labels); err != nil {
			return dst, fmt.Errorf("stream %d: %w", i+1, err)
		}
		dst = append(dst, `,"values":[`...)
		for j := range s.Entries {
			if j > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendEntry(dst, &s.Entries[j]); err != nil {
				return dst, fmt.Errorf("stream %d, entry %d: %w", i+1, j+1, err)
			}
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `]}`...), nil
}

func appendEntry(dst []byte, e *Entry) ([]byte, error) {
	dst = append(dst, '[', '"')
	dst = strconv.AppendInt(dst, e.Time, 10)
	dst = append(dst, '"', ',')
	dst, err := appendString(dst, e.Line)
	if err != nil {
		return dst, err
	}
	if len(e.Meta) > 0 {
		if dst, err = appendPairs(append(dst, ','), e.Meta); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func appendPairs(dst []byte, labels []relay.Label) ([]byte, error) {
	var err error
	dst = append(dst, '{')
	for i, l := range labels {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendString(dst, l.Name); err != nil {
			return dst, err
		}
		if dst, err = appendString(append(dst, ':'), l.Value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// LokiProto appends streams as a logproto.PushRequest, not yet compressed.
func LokiProto(dst []byte, streams []Stream) []byte {
	var labels []byte
	for _, s := range streams {
		labels = LabelText(labels[:0], s.Labels)
		size := protowire.SizeTag(fieldLabels) + protowire.SizeBytes(len(labels))
		for i := range s.Entries {
			size += protowire.SizeTag(fieldEntries) + protowire.SizeBytes(protoEntrySize(&s.Entries[i]))
		}
		dst = appendLen(dst, fieldStreams, size)
		dst = appendLen(dst, fieldLabels, len(labels))
		dst = append(dst, labels...)
		for i := range s.Entries {
			dst = appendProtoEntry(dst, &s.Entries[i])
		}
	}
	return dst
}

// LabelText appends labels in Prometheus' text form.
func LabelText(dst []byte, labels []relay.Label) []byte {
	dst = append(dst, '{')
	for i, l := range labels {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		if l.Name == "" || strings.ContainsAny(l.Name, nameEnds) {
			dst = strconv.AppendQuote(dst, l.Name)
		} else {
			dst = append(dst, l.Name...)
		}
		dst = strconv.AppendQuote(append(dst, '='), l.Value)
	}
	return append(dst, '}')
}

func appendLen(dst []byte, number protowire.Number, size int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) //nolint:gosec // a length
}

func protoTimeSize(seconds, nanos uint64) int {
	return protowire.SizeTag(fieldSeconds) + protowire.SizeVarint(seconds) + protowire.SizeTag(fieldNanos) + protowire.SizeVarint(nanos)
}

func protoPairSize(l relay.Label) int {
	return protowire.SizeTag(fieldName) + protowire.SizeBytes(len(l.Name)) + protowire.SizeTag(fieldValue) + protowire.SizeBytes(len(l.Value))
}

func protoEntrySize(e *Entry) int {
	size := protowire.SizeTag(fieldTimestamp) + protowire.SizeBytes(protoTimeSize(splitTime(e.Time)))
	size += protowire.SizeTag(fieldLine) + protowire.SizeBytes(len(e.Line))
	for _, l := range e.Meta {
		size += protowire.SizeTag(fieldMeta) + protowire.SizeBytes(protoPairSize(l))
	}
	return size
}

// splitTime returns the fields of a google.protobuf.Timestamp: nanos count forward.
func splitTime(t int64) (seconds, nanos uint64) {
	s, n := t/1e9, t%1e9
	if n < 0 {
		s, n = s-1, n+1e9
	}
	return uint64(s), uint64(n) //nolint:gosec // two's complement, as protobuf's int64
}

func appendProtoEntry(dst []byte, e *Entry) []byte {
	seconds, nanos := splitTime(e.Time)
	dst = appendLen(dst, fieldEntries, protoEntrySize(e))
	dst = appendLen(dst, fieldTimestamp, protoTimeSize(seconds, nanos))
	dst = protowire.AppendTag(dst, fieldSeconds, protowire.VarintType)
	dst = protowire.AppendVarint(dst, seconds)
	dst = protowire.AppendTag(dst, fieldNanos, protowire.VarintType)
	dst = protowire.AppendVarint(dst, nanos)
	dst = appendLen(dst, fieldLine, len(e.Line))
	dst = append(dst, e.Line...)
	for _, l := range e.Meta {
		dst = appendLen(dst, fieldMeta, protoPairSize(l))
		dst = appendLen(dst, fieldName, len(l.Name))
		dst = append(dst, l.Name...)
		dst = appendLen(dst, fieldValue, len(l.Value))
		dst = append(dst, l.Value...)
	}
	return dst
}

// appendString appends a text, unless JSON cannot carry it.
func appendString[S ~string | ~[]byte](dst []byte, text S) ([]byte, error) {
	if !utf8.ValidString(string(text)) {
		return dst, jsontext.ErrUTF8
	}
	return jsontext.AppendString(dst, text), nil
}
