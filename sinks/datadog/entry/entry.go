// Package entry makes log entries for Datadog of events. It knows nothing of
// HTTP, nor of Datadog's client, which takes minutes to compile.
//
// # What an entry holds
//
//   - message: the event's body, byte for byte. A body that is no valid UTF-8,
//     which JSON cannot carry, stands there in base64, and
//     @auditrelay.encoding says so.
//   - ddsource, service, hostname, ddtags: by template.
//   - timestamp: the event's time in milliseconds, which Datadog takes for the
//     official date.
//   - status: the body's own "status" where that is a short string, so that
//     errors are shown as errors.
//   - ce: the CloudEvents attributes, such as @ce.id; @ce.time has nanoseconds.
//   - the body's fields where it is a JSON object: each where Datadog itself
//     puts the fields of a JSON log, so that it is found as @action or @user_id.
//     Fields whose name means something to Datadog or to this package stand
//     beneath "event", as @event.status. Values stay as they are written: a
//     number keeps all its digits.
//   - auditrelay: what was done to the entry; see [Marks]. As a rule it is not there.
//
// # What Datadog does in silence
//
// The intake acknowledges an entry of more than 1 MB and cuts it, and one whose
// date is more than 18 hours old, or 2 hours ahead, and drops it. So such an
// entry is not made: it is refused, or changed visibly where the configuration
// asks for that. (https://docs.datadoghq.com/api/latest/logs/#send-logs and
// https://docs.datadoghq.com/logs/log_configuration/processors/log_date_remapper/)
package entry

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// The intake's limits, with what is kept free of them. Its megabytes are taken
// to be the smaller ones, of 1000 kB.
const (
	MaxEntries      = 1000
	MaxRequestBytes = 5_000_000 - 100_000
	MaxBytes        = 1_000_000 - 10_000
	MaxAge          = 18*time.Hour - windowMargin
	MaxAhead        = 2*time.Hour - windowMargin
)

// windowMargin is for the way to the intake, and for clocks that differ.
const windowMargin = 5 * time.Minute

// Entry is one log entry.
type Entry struct {
	Message                         string
	Source, Service, Hostname, Tags *string // nil: none
	// Attributes are the others by name. Each is a number, or JSON.
	Attributes map[string]any
	// Size is how many bytes the entry is at most as encoding/json writes it,
	// HTML characters escaped.
	Size int
}

// Marks say what was done to an entry, beneath the attribute "auditrelay".
type Marks struct {
	// Encoding is base64 where the message is the body in base64.
	Encoding string `json:"encoding,omitempty"`
	// Truncated: the message is only the start of the body, which had
	// OriginalSize bytes.
	Truncated    bool `json:"truncated,omitempty"`
	OriginalSize int  `json:"original_size,omitempty"`
	// AttributesOmitted: the body's fields were left out, or the entry would
	// have been too large. The message has them.
	AttributesOmitted bool `json:"attributes_omitted,omitempty"`
	// Restamped: the timestamp is when the entry was sent, as the event's own,
	// which is in @ce.time, is outside of what the intake takes.
	Restamped bool `json:"restamped,omitempty"`
}

// Make makes the entry for e as it is sent at now. An error says why the intake
// would not keep it whole, and what can be done; it is for good.
func (m *Maker) Make(e *relay.Event, now time.Time) (Entry, error) {
	b := builder{maker: m, event: e, stamp: e.Time}
	if err := checkWindow(e.Time, now); err != nil {
		if !m.restamp {
			return Entry{}, err
		}
		b.stamp, b.marks.Restamped = now, true
	}
	entry := b.whole()
	if entry.Size <= MaxBytes {
		return entry, nil
	}
	if b.placed {
		b.marks.AttributesOmitted = true
		if entry = b.bare(b.message()); entry.Size <= MaxBytes {
			return entry, nil
		}
	}
	if !m.truncate {
		return Entry{}, fmt.Errorf("entry of %d bytes is larger than the intake's 1 MB, where it would be cut; "+
			"oversize: truncate delivers the start of it", entry.Size)
	}
	return b.truncated()
}

func checkWindow(t, now time.Time) error {
	const cure = "outside_window: restamp delivers it with the time of sending"
	switch age := now.Sub(t); {
	case age > MaxAge:
		return fmt.Errorf("event of %s is older than the intake's 18 h, where it would vanish; %s", t.UTC().Format(time.RFC3339), cure)
	case age < -MaxAhead:
		return fmt.Errorf("event of %s is further ahead than the intake's 2 h, where it would vanish; %s", t.UTC().Format(time.RFC3339), cure)
	}
	return nil
}

// builder makes one entry.
type builder struct {
	maker  *Maker
	event  *relay.Event
	stamp  time.Time
	status json.RawMessage // nil: none
	marks  Marks
	placed bool // the body's fields are attributes
}

// whole makes the entry with all that belongs to it.
func (b *builder) whole() Entry {
	if !utf8.Valid(b.event.Body) {
		b.marks.Encoding = "base64"
		return b.bare(b.message())
	}
	message := b.message()
	var room [24]member
	members, ok := membersOf(b.event.Body, room[:0])
	if !ok {
		return b.bare(message)
	}
	b.status = statusOf(members)
	entry := b.bare(message)
	b.placed = b.maker.place(&entry, b.event.Body, members)
	return entry
}

// message is the body as text. It shares the body's bytes, which never change.
func (b *builder) message() string {
	if b.marks.Encoding != "" {
		return base64.StdEncoding.EncodeToString(b.event.Body)
	}
	return view(b.event.Body)
}

// bare makes the entry without the body's fields.
func (b *builder) bare(message string) Entry {
	m, e := b.maker, b.event
	entry := Entry{
		Message: message,
		Source:  m.source.text(e), Service: m.service.text(e), Hostname: m.hostname.text(e), Tags: m.tags.text(e),
		Attributes: make(map[string]any, 16),
		Size:       len("{}"),
	}
	entry.Size += memberSize("message", stringSize(message))
	entry.named("ddsource", entry.Source)
	entry.named("service", entry.Service)
	entry.named("hostname", entry.Hostname)
	entry.named("ddtags", entry.Tags)
	entry.Attributes["timestamp"] = b.stamp.UnixMilli()
	entry.Size += memberSize("timestamp", maxInteger)
	entry.attribute("ce", appendEnvelope(make([]byte, 0, 384), e))
	if b.status != nil {
		entry.attribute("status", b.status)
	}
	if b.marks != (Marks{}) {
		text, _ := json.Marshal(b.marks) // plain fields: it cannot fail
		entry.attribute("auditrelay", text)
	}
	return entry
}

func (e *Entry) named(name string, value *string) {
	if value != nil {
		e.Size += memberSize(name, stringSize(*value))
	}
}

// attribute adds an attribute that is JSON.
func (e *Entry) attribute(name string, value json.RawMessage) {
	e.Attributes[name] = value
	e.Size += memberSize(name, rawSize(value))
}

// truncated makes an entry of as much of the body as there is room for.
func (b *builder) truncated() (Entry, error) {
	body := b.event.Body
	b.marks.Truncated, b.marks.OriginalSize, b.marks.AttributesOmitted = true, len(body), b.placed
	empty := b.bare("")
	room := MaxBytes - empty.Size
	if room <= 0 {
		return Entry{}, fmt.Errorf("entry of %d bytes without its message is larger than the intake's 1 MB", empty.Size)
	}
	if b.marks.Encoding != "" {
		return b.bare(base64.StdEncoding.EncodeToString(body[:min(len(body), room/4*3)])), nil
	}
	return b.bare(cut(view(body), room)), nil
}

// view is b as a string that shares its bytes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
