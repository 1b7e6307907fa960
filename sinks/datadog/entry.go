package datadog

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// The intake's limits, with a reserve. Its megabytes are taken to be the smaller kind, of 1000
// kB.
const (
	maxEntries      = 1000
	maxRequestBytes = 5_000_000 - 100_000
	maxEntryBytes   = 1_000_000 - 10_000
	maxAge          = 18*time.Hour - windowMargin
	maxAhead        = 2*time.Hour - windowMargin
)

// windowMargin allows for the way to the intake, and for clocks that differ.
const windowMargin = 5 * time.Minute

// marks are the changes made to an entry, below the attribute "auditrelay".
type marks struct {
	// Encoding is base64 if the message is the body in base64.
	Encoding string `json:"encoding,omitempty"`
	// Truncated is set if the message is only the start of the body, which had OriginalSize
	// bytes.
	Truncated    bool `json:"truncated,omitempty"`
	OriginalSize int  `json:"original_size,omitempty"`
	// AttributesOmitted is set if the body's fields were left out because the entry would have
	// been too large. The message contains them.
	AttributesOmitted bool `json:"attributes_omitted,omitempty"`
	// Restamped is set if the timestamp is the time of sending, because the event's own, in
	// @ce.time, is outside the intake's window.
	Restamped bool `json:"restamped,omitempty"`
}

// encoder encodes entries one after the other, in memory that is reused.
type encoder struct {
	maker  *maker
	joined []byte // memory for a text

	// The fields below are those of the entry under way.
	event   *relay.Event
	stamp   time.Time
	members []member // of the body
	marks   marks
}

// encoder returns an encoder that makes such entries.
func (m *maker) encoder() *encoder { return &encoder{maker: m} }

// appendEntry appends the entry for e, sent at now, to dst: one JSON object. An error says why the
// intake would not keep the entry whole, and what to do. Such an error is permanent, and dst is
// then returned as it was.
func (c *encoder) appendEntry(dst []byte, e *relay.Event, now time.Time) ([]byte, error) {
	c.event, c.stamp, c.marks = e, e.Time, marks{}
	if err := checkWindow(e.Time, now); err != nil {
		if !c.maker.restamp {
			return dst, err
		}
		c.stamp, c.marks.Restamped = now, true
	}
	c.read()
	dst, err := c.append(dst)
	c.event = nil
	clear(c.members[:cap(c.members)]) // they point into the body
	return dst, err
}

func checkWindow(t, now time.Time) error {
	const cure = "outside_window: restamp delivers it with the time of sending"
	switch age := now.Sub(t); {
	case age > maxAge:
		return fmt.Errorf("event of %s is older than the intake's 18 h, where it would vanish; %s", t.UTC().Format(time.RFC3339), cure)
	case age < -maxAhead:
		return fmt.Errorf("event of %s is further ahead than the intake's 2 h, where it would vanish; %s", t.UTC().Format(time.RFC3339), cure)
	}
	return nil
}

// maxMembers bounds the members whose memory is kept.
const maxMembers = 1024

// read examines the body.
func (c *encoder) read() {
	if cap(c.members) > maxMembers {
		c.members = nil
	}
	c.members = c.members[:0]
	if !utf8.Valid(c.event.Body) {
		c.marks.Encoding = "base64"
		return
	}
	c.members = withoutRepeats(membersOf(c.event.Body, c.members))
}

// append appends as much of the entry as the intake keeps whole: all of it, or else the entry
// without the body's fields, or else only the start of the message.
func (c *encoder) append(dst []byte) ([]byte, error) {
	start, body := len(dst), c.event.Body
	fits := func() bool { return len(dst)-start <= maxEntryBytes }
	placed := c.maker.fields != fieldsNone && len(c.members) > 0
	if len(body) <= maxEntryBytes { // it may fit, and encoding it takes bounded memory
		if dst = c.encode(dst, body, placed); fits() {
			return dst, nil
		}
		if c.marks.AttributesOmitted = placed; placed {
			if dst = c.encode(dst[:start], body, false); fits() {
				return dst, nil
			}
		}
	}
	if !c.maker.truncate {
		return dst[:start], fmt.Errorf("entry of an event of %d bytes is larger than the intake's 1 MB, where it would be cut; "+
			"oversize: truncate delivers the start of it", len(body))
	}
	c.marks.Truncated, c.marks.OriginalSize, c.marks.AttributesOmitted = true, len(body), placed
	return c.truncated(dst[:start])
}

// truncated appends an entry with as much of the body as there is room for.
func (c *encoder) truncated(dst []byte) ([]byte, error) {
	start, body := len(dst), c.event.Body
	dst = c.encode(dst, nil, false)
	empty := len(dst) - start
	room := maxEntryBytes - empty
	switch {
	case room <= 0:
		return dst[:start], fmt.Errorf("entry of %d bytes without its message is larger than the intake's 1 MB", empty)
	case c.marks.Encoding != "":
		return c.encode(dst[:start], body[:min(len(body), room/4*3)], false), nil
	}
	return c.encode(dst[:start], cut(body, room), false), nil
}

// encode appends the entry with a message: the body, or its start. The body's fields come
// first, so that a reader of a repeated name ends with ours.
func (c *encoder) encode(dst, message []byte, fields bool) []byte {
	dst = append(dst, '{')
	if fields {
		dst = c.appendFields(dst)
	}
	dst = c.appendMessage(append(dst, `"message":`...), message)
	for i := range c.maker.texts {
		dst = c.appendMember(dst, &c.maker.texts[i])
	}
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), c.stamp.UnixMilli(), 10)
	if status := statusOf(c.members); status != nil {
		dst = append(append(dst, `,"status":`...), status...)
	}
	dst = appendEnvelope(append(dst, `,"ce":`...), c.event)
	if c.marks != (marks{}) {
		text, _ := json.Marshal(c.marks) // plain fields: it cannot fail
		dst = append(append(dst, `,"auditrelay":`...), text...)
	}
	return append(dst, '}')
}

func (c *encoder) appendMessage(dst, message []byte) []byte {
	if c.marks.Encoding == "" {
		return jsontext.AppendString(dst, view(message))
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), message)
	return append(dst, '"')
}

// view returns b as a string that shares its bytes, which must not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
