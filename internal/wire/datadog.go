package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// DatadogLimits bound the memory that a decoder takes for a push's entries.
type DatadogLimits struct {
	Labels LabelLimit // those of each entry
	// Line bounds a message, in bytes, that is unescaped in order to see whether it is an
	// event.
	Line int
}

// Room returns the most memory that a decoder takes in addition to a body of that many bytes.
func (l DatadogLimits) Room(body int) int64 {
	const memory = 2 // how much larger than its content a growing slice may be
	return memory * int64(min(2*body, maxEscaped*l.Line+2*maxEscape*l.Labels.Bytes))
}

// maxEscaped is the most bytes that JSON may take for one byte of text: \u0041.
const maxEscaped = 6

// DecodeDatadog decodes an array of objects, one object, or objects one after the other, one on each
// line. It does not write into body. In addition to body it holds at most [DatadogLimits.Room].
//
// DecodeDatadog reports a faulty entry to the handler. After an error, the body must not be used, and
// neither must the entries that were already handled. The error is ErrEmpty, one of the
// handler, or one that names the entry and the byte.
func DecodeDatadog(body []byte, limits DatadogLimits, h Handler) error {
	d, _ := datadogDecoders.Get().(*datadogDecoder)
	d.scan.Reset(body)
	d.body, d.h, d.limits = body, h, limits
	err := d.placed(d.push())
	d.release()
	return err
}

// datadogDecoders keeps decoders, so that their memory is used again.
var datadogDecoders = sync.Pool{New: func() any { return new(datadogDecoder) }}

// The bounds of a datadogDecoder in the pool.
const (
	maxKeptOthers  = 256
	maxKeptScratch = 1 << 20
)

type datadogDecoder struct {
	handling
	scan   jsontext.Scanner
	body   []byte
	limits DatadogLimits

	// The fields below are those of the current entry.
	entry    Entry
	labels   LabelSet
	others   []other // at most one more than may be labels
	scratch  []byte  // unescaped texts
	message  []byte  // the text of a message, perhaps an event
	messages int     // the number of members named "message"; only a single one is understood
	bad      error
	wanted   [1]jsontext.Wanted // of the message
}

// other is an attribute that can only be used as a label. It becomes one only if the body is
// the message.
type other struct{ name, value jsontext.Raw }

func (d *datadogDecoder) release() {
	others, scratch := d.others, d.scratch
	*d = datadogDecoder{labels: d.labels.Kept()}
	clear(others)
	if cap(others) <= 2*maxKeptOthers && cap(scratch) <= maxKeptScratch {
		d.others, d.scratch = others[:0], scratch[:0]
	}
	datadogDecoders.Put(d)
}

func (d *datadogDecoder) push() error {
	switch d.scan.Peek() {
	case 0:
		if err := d.scan.End(); err != nil {
			return err
		}
		return ErrEmpty
	case '[':
		if err := d.scan.Array(func(int) error { return d.element() }); err != nil {
			return err
		}
	case '{':
		for d.scan.Peek() == '{' {
			if err := d.element(); err != nil {
				return err
			}
		}
	default:
		return d.scan.Open('{')
	}
	return d.scan.End()
}

func (d *datadogDecoder) element() error {
	d.at.Entry++
	if c := d.scan.Peek(); c != '{' {
		if err := d.refuse(1, fmt.Errorf("it is %s, not an object", jsontext.Kind(c))); err != nil {
			return err
		}
		return d.scan.Skip()
	}
	d.entry = Entry{}
	d.labels.Reset(d.limits.Labels)
	d.others, d.scratch = d.others[:0], d.scratch[:0]
	d.message, d.messages, d.bad = nil, 0, nil
	start := d.scan.Pos()
	if err := d.members(); err != nil {
		return err
	}
	d.finish(d.body[start:d.scan.Pos():d.scan.Pos()])
	if d.bad != nil {
		return d.refuse(1, d.bad)
	}
	return d.call(d.h.Entry(d.at, &d.entry))
}

func (d *datadogDecoder) members() error {
	return d.scan.Object(func(name jsontext.Raw) error {
		key := name.Bytes
		if name.Escaped {
			key = d.shortKey(name)
		}
		if string(key) == "message" {
			d.messages++
			if d.holdsObject() {
				return d.readMessage()
			}
		}
		value, isText, err := d.value()
		if err == nil {
			d.member(key, name, value, isText)
		}
		return err
	})
}

// holdsObject reports whether the next value is a string that begins like an object.
func (d *datadogDecoder) holdsObject() bool {
	if d.scan.Peek() != '"' {
		return false
	}
	next := d.scan.Pos() + 1
	return next < len(d.body) && d.body[next] == '{'
}

// readMessage reads such a string. If it is too long, or not text, it is no event.
func (d *datadogDecoder) readMessage() error {
	start := len(d.scratch)
	grown, err := d.scan.AppendText(d.scratch, maxEscaped*d.limits.Line)
	if err != nil && !jsontext.IsContent(err) {
		return err
	}
	d.scratch, d.message = grown, grown[start:]
	return nil
}

// value reads any value: a string without its quotes, others as they are written.
func (d *datadogDecoder) value() (value jsontext.Raw, isText bool, err error) {
	if d.scan.Peek() == '"' {
		value, err = d.scan.String()
		return value, true, err
	}
	start := d.scan.Pos()
	err = d.scan.Skip()
	return jsontext.Raw{Bytes: d.body[start:d.scan.Pos()], ASCII: true}, false, err
}

// member takes one attribute. A reserved one with a strange value is treated like any other.
func (d *datadogDecoder) member(key []byte, name, value jsontext.Raw, isText bool) {
	switch string(key) {
	case "message":
		if isText {
			return
		}
	case "timestamp", "date":
		if d.entry.Timed {
			break
		}
		if d.entry.Time, d.entry.Timed = datadogTime(value.Bytes, isText); d.entry.Timed {
			return
		}
	case "ddtags":
		if isText {
			d.keep(AddTags(&d.labels, d.text(value)))
			return
		}
	case "ddsource", "hostname", "service", "status":
		if isText {
			d.label(name, value)
			return
		}
	}
	if len(d.others) <= d.limits.Labels.Count {
		d.others = append(d.others, other{name, value})
	}
}

// shortKey returns the text of an escaped key, if it may be a reserved one.
func (d *datadogDecoder) shortKey(name jsontext.Raw) []byte {
	const longest = maxEscaped * len("timestamp")
	if len(name.Bytes) > longest {
		return nil
	}
	key, err := name.AppendText(nil)
	d.keep(err)
	return key
}

// label adds a label. After a faulty one, further labels do not matter.
func (d *datadogDecoder) label(name, value jsontext.Raw) {
	l := relay.Label{Name: d.text(name), Value: d.text(value)}
	if d.bad == nil {
		d.bad = d.labels.Add(l)
	}
}

// keep keeps the first error.
func (d *datadogDecoder) keep(err error) {
	if d.bad == nil {
		d.bad = err
	}
}

// text returns a string's text, and records that a string has no exact one.
func (d *datadogDecoder) text(raw jsontext.Raw) string {
	if !raw.Escaped {
		return view(raw.Bytes)
	}
	if d.bad == nil {
		d.bad = d.limits.Labels.Check(len(raw.Bytes))
	}
	if d.bad != nil {
		return ""
	}
	start := len(d.scratch)
	grown, err := raw.AppendText(d.scratch)
	if err != nil {
		d.bad = err
		return ""
	}
	d.scratch = grown
	return view(grown[start:])
}

// finish completes the entry of the given object.
func (d *datadogDecoder) finish(object []byte) {
	if !d.scan.ASCII() && !utf8.Valid(object) {
		d.bad = jsontext.ErrUTF8
		return
	}
	d.entry.Body = object
	if d.takeMessage() {
		for _, o := range d.others {
			d.label(o.name, o.value)
		}
	}
	d.entry.Labels = d.labels.Labels
}

// takeMessage makes the message the body if it is an event of its own.
func (d *datadogDecoder) takeMessage() bool {
	text := d.message
	if d.messages != 1 || len(text) == 0 || text[len(text)-1] != '}' {
		return false
	}
	d.wanted[0].Quoted = `"event_id"`
	jsontext.Lookup(text, d.wanted[:])
	if id := d.wanted[0].Value.Bytes; len(id) == 0 || len(id) > MaxEventID {
		return false
	}
	d.entry.Body = text
	return true
}

// AddTags adds a list such as "env:prod,team:iam" as labels. A tag without a
// colon is a name without a value. Its error is the set's.
func AddTags(set *LabelSet, tags string) error {
	for tags != "" {
		var tag string
		tag, tags, _ = strings.Cut(tags, ",")
		if tag = strings.TrimSpace(tag); tag != "" {
			name, value, _ := strings.Cut(tag, ":")
			if err := set.Add(relay.Label{Name: name, Value: value}); err != nil {
				return err
			}
		}
	}
	return nil
}

// datadogTime reads milliseconds since 1970 or, in a string, RFC 3339, as Unix
// nanoseconds.
func datadogTime(value []byte, isText bool) (int64, bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms, err := strconv.ParseInt(view(value), 10, 64); err == nil {
		return ms * int64(time.Millisecond), -most <= ms && ms <= most
	}
	if !isText {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339Nano, view(value))
	if err != nil || t.UnixMilli() < -most || t.UnixMilli() > most {
		return 0, false
	}
	return t.UnixNano(), true
}
