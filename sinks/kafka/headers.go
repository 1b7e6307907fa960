package kafka

import (
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// headers are a record's headers as they stand in a batch.
type headers struct {
	encoded []byte
	count   int
}

func (h *headers) reset() { h.encoded, h.count = h.encoded[:0], 0 }

func (h *headers) add(name, value string) {
	h.name(name)
	h.encoded = binary.AppendVarint(h.encoded, int64(len(value)))
	h.encoded = append(h.encoded, value...)
}

func (h *headers) optional(name, value string) {
	if value != "" {
		h.add(name, value)
	}
}

func (h *headers) name(name string) {
	h.count++
	h.encoded = append(h.encoded, byte(len(name)<<1)) // a varint: names are shorter than 64 bytes
	h.encoded = append(h.encoded, name...)
}

func (h *headers) time(name string, t time.Time, c *clock) {
	h.name(name)
	at := len(h.encoded)
	h.encoded = c.append(append(h.encoded, 0), t)
	length := len(h.encoded) - at - 1
	h.encoded[at] = byte(length << 1) // a varint: RFC 3339 is shorter than 64 bytes
}

func (h *headers) join(others *headers) {
	h.encoded = append(h.encoded, others.encoded...)
	h.count += others.count
}

// shared has the headers common to all events of a push. They are encoded once a push.
type shared struct {
	of relay.Event // the common fields alone

	source, rest headers
}

// fit makes the headers those of e.
func (s *shared) fit(e *relay.Event, c *clock) {
	if s.source.count > 0 && s.of.Received.Equal(e.Received) && s.of.Source == e.Source && s.of.Project == e.Project &&
		s.of.Environment == e.Environment && s.of.ContentType == e.ContentType {
		return
	}
	s.of = relay.Event{
		Source: e.Source, Project: e.Project, Environment: e.Environment,
		ContentType: e.ContentType, Received: e.Received,
	}
	s.source.reset()
	s.source.add("ce_source", e.Source)
	s.rest.reset()
	s.rest.optional("ce_project", e.Project)
	s.rest.optional("ce_environment", e.Environment)
	s.rest.time("ce_receivedtime", e.Received, c)
	s.rest.optional("content-type", e.ContentType)
}

// forget drops the event's strings: they hold on to much more memory.
func (s *shared) forget() {
	s.of = relay.Event{}
	s.source.reset()
}

// clock writes times as time.RFC3339Nano does, in UTC. It keeps the text of the
// last second, as most events follow closely.
type clock struct {
	second int64
	text   []byte
}

func (c *clock) append(dst []byte, t time.Time) []byte {
	if c.text == nil || c.second != t.Unix() {
		c.second = t.Unix()
		c.text = t.UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05")
	}
	dst = append(dst, c.text...)
	if ns := t.Nanosecond(); ns > 0 {
		digits := [10]byte{0: '.'}
		last := 0
		for i := 9; i > 0; i-- {
			digits[i] = byte('0' + ns%10)
			if last == 0 && ns%10 > 0 {
				last = i
			}
			ns /= 10
		}
		dst = append(dst, digits[:last+1]...)
	}
	return append(dst, 'Z')
}
