package wire

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// Field numbers of logproto.PushRequest and its messages.
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

// errWireType is for a known field, encoded as another type.
var errWireType = errors.New("a field has the wrong wire type")

// DecodeLokiProto decodes a logproto.PushRequest, already decompressed (see [Unsnappy]). It
// skips unknown fields. It does not write into raw. limit and the error are those of
// [DecodeLokiJSON].
func DecodeLokiProto(raw []byte, limit LabelLimit, h Handler) error {
	d, _ := lokiProtos.Get().(*lokiProto)
	d.h, d.limit = h, limit
	err := d.outcome(d.push(raw))
	d.loki = d.kept()
	lokiProtos.Put(d)
	return err
}

var lokiProtos = sync.Pool{New: func() any { return new(lokiProto) }}

type lokiProto struct{ loki }

// field is one field of a message. data is set for a length-delimited one,
// value for a varint.
type field struct {
	number protowire.Number
	data   []byte
	value  uint64
}

// eachField visits the fields of a message with one of the numbers up to most. They must have a
// wire type.
func eachField(b []byte, most protowire.Number, want protowire.Type, visit func(f field) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		f := field{number: number}
		if n >= 0 {
			b = b[n:]
			switch typ {
			case protowire.BytesType:
				f.data, n = protowire.ConsumeBytes(b)
			case protowire.VarintType:
				f.value, n = protowire.ConsumeVarint(b)
			default:
				n = protowire.ConsumeFieldValue(number, typ, b)
			}
		}
		if n < 0 {
			return fmt.Errorf("invalid protobuf: %w", protowire.ParseError(n))
		}
		b = b[n:]
		switch {
		case number > most:
		case typ != want:
			return errWireType
		default:
			if err := visit(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *lokiProto) push(raw []byte) error {
	return eachField(raw, fieldStreams, protowire.BytesType, func(f field) error {
		d.at = Place{Stream: d.at.Stream + 1}
		return d.stream(f.data)
	})
}

// stream reads a stream twice: for its labels, anywhere in it, and for the entries. The
// first pass only hops from field to field.
func (d *lokiProto) stream(raw []byte) error {
	text, entries, err := scanStream(raw)
	if err != nil {
		return err
	}
	d.labels.Reset(d.limit)
	if err := d.parseLabels(text); err != nil {
		return d.refuse(entries, fmt.Errorf("labels: %w", err))
	}
	if err := d.call(d.h.Stream(d.labels.Labels)); err != nil {
		return err
	}
	err = eachField(raw, fieldEntries, protowire.BytesType, func(f field) error {
		if f.number != fieldEntries {
			return nil
		}
		d.at.Entry++
		if bad := d.readEntry(f.data); bad != nil {
			return d.refuse(1, bad)
		}
		return d.call(d.h.Entry(d.at, &d.entry))
	})
	if err == nil {
		d.at.Entry = 0
	}
	return err
}

// scanStream finds a stream's labels and counts its entries. Of several labels fields,
// protobuf takes the last.
func scanStream(raw []byte) (labels []byte, entries int, err error) {
	err = eachField(raw, fieldEntries, protowire.BytesType, func(f field) error {
		if f.number == fieldLabels {
			labels = f.data
		} else {
			entries++
		}
		return nil
	})
	return labels, entries, err
}

func (d *lokiProto) readEntry(raw []byte) error {
	d.entry = Entry{Timed: true}
	d.meta.Reset(d.limit)
	timed := false
	err := eachField(raw, fieldMeta, protowire.BytesType, func(f field) (err error) {
		switch f.number {
		case fieldTimestamp:
			timed = true
			d.entry.Time, err = readTime(f.data)
			return within("timestamp", err)
		case fieldLine:
			d.entry.Body = f.data
			return within("line", checkUTF8(f.data))
		default:
			return within("structured metadata", d.readMeta(f.data))
		}
	})
	if err != nil {
		return err
	}
	if !timed {
		return errors.New("it has no timestamp")
	}
	d.entry.Labels = d.meta.Labels
	return nil
}

func (d *lokiProto) readMeta(raw []byte) error {
	var l relay.Label
	err := eachField(raw, fieldValue, protowire.BytesType, func(f field) error {
		if f.number == fieldName {
			l.Name = view(f.data)
		} else {
			l.Value = view(f.data)
		}
		return checkUTF8(f.data)
	})
	if err != nil {
		return err
	}
	return d.meta.Add(l)
}

// parseLabels reads the stream's labels. Their text has some bytes for each label besides
// names and values.
func (d *lokiProto) parseLabels(text []byte) error {
	const around = 16
	if err := d.limit.Check(len(text) - around*d.limit.Count); err != nil {
		return err
	}
	return parseLabels(&d.labels, text)
}

func checkUTF8(b []byte) error {
	if !utf8.Valid(b) {
		return jsontext.ErrUTF8
	}
	return nil
}

// readTime reads a google.protobuf.Timestamp as Unix nanoseconds.
func readTime(raw []byte) (int64, error) {
	var seconds, nanos int64
	err := eachField(raw, fieldNanos, protowire.VarintType, func(f field) error {
		if f.number == fieldSeconds {
			seconds = int64(f.value) //nolint:gosec // two's complement, as protobuf's int64
		} else {
			nanos = int64(int32(f.value)) //nolint:gosec // as protobuf's int32
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	const most = math.MaxInt64 / int64(1e9)
	if nanos < 0 || nanos >= 1e9 || seconds < -most || seconds >= most {
		return 0, errors.New("it is out of range")
	}
	return seconds*1e9 + nanos, nil
}

// ErrSnappy means the body is no snappy block.
var ErrSnappy = errors.New("the body is no snappy block")

// maxRatio bounds the growth of a snappy block: its densest element is a copy of 64 bytes
// in three.
const maxRatio = 22

// UnsnappyLen returns the decompressed length by a snappy block's own word. It refuses
// impossible lengths, so it is safe to allocate that much.
func UnsnappyLen(src []byte) (int, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSnappy, err)
	}
	if n > len(src)*maxRatio {
		return 0, fmt.Errorf("%w: its length lies: %d bytes cannot decompress to %d", ErrSnappy, len(src), n)
	}
	return n, nil
}

// Unsnappy decompresses src into dst's memory, or into new memory if dst is too small.
func Unsnappy(dst, src []byte) ([]byte, error) {
	if _, err := UnsnappyLen(src); err != nil {
		return nil, err
	}
	out, err := snappy.Decode(dst[:cap(dst)], src)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnappy, err)
	}
	return out, nil
}
