package entry

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf16"

	"github.com/auditrelay/auditrelay/internal/wire/jsonscan"
)

// member is one field of a JSON object, as it stands there.
type member struct {
	name  jsonscan.Raw
	value []byte
}

// key is the name's text.
func (m member) key() string {
	if !m.name.Escaped {
		return view(m.name.Bytes)
	}
	text, err := m.name.AppendText(nil)
	if err != nil { // membersOf took no such object
		return view(m.name.Bytes)
	}
	return view(text)
}

// membersOf appends the fields of the object that body, valid UTF-8, is as a
// whole, and reports whether it is one.
func membersOf(body []byte, dst []member) ([]member, bool) {
	var s jsonscan.Scanner
	s.Reset(body)
	if s.Open('{') != nil {
		return nil, false
	}
	for n := 0; ; n++ {
		more, err := s.More('}', n)
		if err != nil {
			return nil, false
		}
		if !more {
			return dst, s.End() == nil && !halfPair(body)
		}
		var m member
		if m.name, err = s.RawKey(); err != nil {
			return nil, false
		}
		s.Peek()
		start := s.Pos()
		if s.Skip() != nil {
			return nil, false
		}
		m.value = body[start:s.Pos():s.Pos()]
		dst = append(dst, m)
	}
}

// halfPair reports whether valid JSON escapes half of a surrogate pair: text
// that a reader of the entry may refuse, and the whole request with it.
func halfPair(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		first, ok := escaped(text)
		switch {
		case !ok:
			text = text[2:]
		case !utf16.IsSurrogate(first):
			text = text[6:]
		default:
			second, ok := escaped(text[6:])
			if !ok || utf16.DecodeRune(first, second) == '\uFFFD' {
				return true
			}
			text = text[12:]
		}
	}
}

// escaped reads the \uXXXX that text starts with.
func escaped(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range text[2:6] {
		r = r<<4 | rune(hexDigit(c))
	}
	return r, true
}

func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// maxStatus is the longest status that is taken for one.
const maxStatus = 64

// statusOf is the last field "status", where it is a short string.
func statusOf(members []member) (status json.RawMessage) {
	for _, m := range members {
		if m.name.Is("status") {
			status = nil
			if m.value[0] == '"' && len(m.value) <= maxStatus {
				status = m.value
			}
		}
	}
	return status
}

// place puts the body's fields among the attributes as the configuration asks
// for, and reports whether it did.
func (m *Maker) place(e *Entry, body []byte, members []member) bool {
	switch m.fields {
	case fieldsNone:
		return false
	case fieldsNested:
		e.attribute("event", body)
	default:
		e.merge(members)
	}
	return len(members) > 0
}

// merge puts each field beside the entry's own, or beneath "event" where its name
// is taken. A later field of the same name counts, as in most readers of JSON.
func (e *Entry) merge(members []member) {
	var taken []byte
	for _, m := range members {
		key := m.key()
		if !reserved(key) {
			e.Attributes[key] = json.RawMessage(m.value)
			e.Size += len(`:,`) + stringSize(key) + rawSize(m.value)
			continue
		}
		if taken == nil {
			taken = append(make([]byte, 0, 128), '{')
		} else {
			taken = append(taken, ',')
		}
		taken = append(append(append(taken, '"'), m.name.Bytes...), '"', ':')
		taken = append(taken, m.value...)
	}
	if taken != nil {
		e.attribute("event", append(taken, '}'))
	}
}

// reserved reports whether a name means something to Datadog ("Preprocessing for
// JSON logs" and its reserved attributes), or to this package. A name with dots
// is a path to Datadog, so its first part counts.
func reserved(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	switch name {
	case "message", "ddsource", "ddtags", "tags", "service", "host", "hostname", "source", "device",
		"status", "severity", "level", "syslog",
		"timestamp", "@timestamp", "_timestamp", "Timestamp", "date", "eventTime", "published_date",
		"dd", "contextMap", "trace_id", "span_id",
		"ce", "event", "auditrelay", "":
		return true
	}
	return false
}
