package kafka

import (
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// headers are a record's headers in their encoded form.
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

func (h *headers) time(name string, t time.Time, c *cloudevents.Clock) {
	h.name(name)
	at := len(h.encoded)
	h.encoded = c.Append(append(h.encoded, 0), t)
	length := len(h.encoded) - at - 1
	h.encoded[at] = byte(length << 1) // a varint: RFC 3339 is shorter than 64 bytes
}

func (h *headers) join(others *headers) {
	h.encoded = append(h.encoded, others.encoded...)
	h.count += others.count
}

// shared holds the headers that all events of a push have in common. They are encoded once per
// push.
type shared struct {
	of relay.Event // only the common fields

	source, rest headers
}

// fit makes the headers those of e.
func (s *shared) fit(e *relay.Event, c *cloudevents.Clock) {
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

// forget drops the event's strings, which keep much more memory alive.
func (s *shared) forget() {
	s.of = relay.Event{}
	s.source.reset()
}
