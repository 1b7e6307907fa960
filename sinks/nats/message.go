package nats

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	natsgo "github.com/nats-io/nats.go"

	"github.com/auditrelay/auditrelay/relay"
)

// maxSubject bounds a subject, in bytes. A server closes the connection if the subject's
// line is longer than 4 KiB (max_control_line).
const maxSubject = 1024

// maxSubjects bounds the subjects that are remembered.
const maxSubjects = 1024

// builder makes messages, one at a time. A message is valid until the next one is made.
type builder struct {
	template subject
	msg      natsgo.Msg
	slots    map[string]*slot // by attribute
	id       slot             // Nats-Msg-Id
	subjects map[string]string
	buf      []byte
	reply    []byte // for the caller's use
}

// slot is a header that is reused.
type slot struct {
	name   string
	values [1]string
}

func newBuilder(t subject) *builder {
	return &builder{
		template: t,
		msg:      natsgo.Msg{Header: natsgo.Header{}},
		slots:    map[string]*slot{},
		id:       slot{name: natsgo.MsgIdHdr},
		subjects: map[string]string{},
	}
}

// message makes the message for e.
func (b *builder) message(e *relay.Event, reply string) (*natsgo.Msg, error) {
	subject, err := b.subject(e)
	if err != nil {
		return nil, err
	}
	clear(b.msg.Header)
	for name, value := range e.Attributes {
		b.attribute(name, value)
	}
	if e.ContentType != "" {
		b.attribute("datacontenttype", e.ContentType)
	}
	if reply != "" {
		b.fill(&b.id, b.messageID(e))
	}
	b.msg.Subject, b.msg.Reply, b.msg.Data = subject, reply, e.Body
	return &b.msg, nil
}

func (b *builder) attribute(name, value string) {
	s := b.slots[name]
	if s == nil {
		s = &slot{name: "ce-" + name}
		b.slots[name] = s
	}
	if needsEscape(value) {
		value = string(appendHeaderEscaped(nil, value))
	}
	b.fill(s, value)
}

func (b *builder) fill(s *slot, value string) {
	s.values[0] = value
	b.msg.Header[s.name] = s.values[:]
}

// bodyHash is how many bytes of the body's SHA-256 a message id contains: enough that nobody
// can make a body that hides another event as its duplicate.
const bodyHash = 16

// messageID returns the source, the id and a hash of the body, separated by spaces. In their
// encoded form none of them contains a space, so events with the same messageID have all three
// in common. The server drops duplicates by the message id alone, and an event with a known id
// but another body is another event.
func (b *builder) messageID(e *relay.Event) string {
	b.buf = appendHeaderEscaped(b.buf[:0], e.Source)
	b.buf = append(b.buf, ' ')
	b.buf = appendHeaderEscaped(b.buf, e.ID)
	b.buf = append(b.buf, ' ')
	sum := sha256.Sum256(e.Body)
	b.buf = base64.RawURLEncoding.AppendEncode(b.buf, sum[:bodyHash])
	return string(b.buf)
}

// subject returns the template's subject, from memory if it was made before.
func (b *builder) subject(e *relay.Event) (string, error) {
	b.buf = b.template.appendFor(b.buf[:0], e)
	if subject, ok := b.subjects[string(b.buf)]; ok {
		return subject, nil
	}
	if len(b.buf) > maxSubject {
		return "", relay.Permanent(fmt.Errorf("the event's subject would take %d bytes, at most %d are sent", len(b.buf), maxSubject))
	}
	if len(b.subjects) >= maxSubjects {
		clear(b.subjects)
	}
	subject := string(b.buf)
	b.subjects[subject] = subject
	return subject, nil
}
