package datadog

import (
	"bytes"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// member is one field of a JSON object, as it is written there.
type member struct {
	name  jsontext.Raw
	value []byte
}

// key returns the text of the name.
func (m *member) key() string {
	if !m.name.Escaped {
		return view(m.name.Bytes)
	}
	text, err := m.name.AppendText(nil)
	if err != nil { // membersOf took no such object
		return view(m.name.Bytes)
	}
	return view(text)
}

// membersOf appends the fields of body, if it is a JSON object in valid UTF-8. It returns
// none where body is anything else.
func membersOf(body []byte, dst []member) []member {
	var s jsontext.Scanner
	s.Reset(body)
	err := s.Object(func(key jsontext.Raw) error {
		s.Peek()
		start := s.Pos()
		err := s.Skip()
		dst = append(dst, member{key, body[start:s.Pos():s.Pos()]})
		return err
	})
	// A reader of the entry may refuse half a pair, and with it the whole request.
	if err != nil || s.End() != nil || jsontext.HalfPair(body) {
		return dst[:0]
	}
	return dst
}

// Up to fewMembers are compared with each other faster than with a map.
const fewMembers = 32

// withoutRepeats keeps only the last of several fields with the same name, as most readers of
// JSON do. It changes members.
func withoutRepeats(members []member) []member {
	if len(members) > fewMembers {
		last := make(map[string]int, len(members))
		for i := range members {
			last[members[i].key()] = i
		}
		return keepMembers(members, func(i int) bool { return last[members[i].key()] == i })
	}
	return keepMembers(members, func(i int) bool {
		for k := i + 1; k < len(members); k++ {
			if members[i].sameName(&members[k]) {
				return false
			}
		}
		return true
	})
}

// keepMembers removes the members that keep refuses. It asks for each before it moves a later
// one.
func keepMembers(members []member, keep func(i int) bool) []member {
	n := 0
	for i := range members {
		if keep(i) {
			members[n] = members[i]
			n++
		}
	}
	return members[:n]
}

func (m *member) sameName(o *member) bool {
	if !m.name.Escaped && !o.name.Escaped {
		return bytes.Equal(m.name.Bytes, o.name.Bytes)
	}
	return m.key() == o.key()
}

// maxStatus is the length of the longest status that is accepted.
const maxStatus = 64

// statusOf is the field "status", if it is a short string.
func statusOf(members []member) []byte {
	for i := range members {
		if m := &members[i]; m.name.Is("status") && m.value[0] == '"' && len(m.value) <= maxStatus {
			return m.value
		}
	}
	return nil
}

// appendFields appends the body's fields, each followed by a comma, where the configuration
// wants them.
func (c *encoder) appendFields(dst []byte) []byte {
	if c.maker.fields == fieldsNested {
		dst = append(append(dst, `"event":`...), c.event.Body...)
		return append(dst, ',')
	}
	taken := 0
	for i := range c.members {
		if m := &c.members[i]; reserved(m.key()) {
			taken++
		} else {
			dst = m.append(dst)
		}
	}
	if taken == 0 {
		return dst
	}
	return append(c.appendTaken(append(dst, `"event":{`...)), '}', ',')
}

// appendTaken appends the fields whose names are taken, below "event".
func (c *encoder) appendTaken(dst []byte) []byte {
	for i := range c.members {
		if m := &c.members[i]; reserved(m.key()) {
			dst = m.append(dst)
		}
	}
	return dst[:len(dst)-len(",")]
}

// append appends the field as it is in the body, followed by a comma.
func (m *member) append(dst []byte) []byte {
	dst = append(append(append(dst, '"'), m.name.Bytes...), '"', ':')
	return append(append(dst, m.value...), ',')
}

// reserved reports whether a name means something to Datadog ("Preprocessing for JSON logs" and
// its reserved attributes), or to this package. To Datadog a name with dots is a path, so its
// first part counts.
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
