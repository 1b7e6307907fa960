// Package relay holds the vocabulary of the data path and its delivery loop.
//
// An [Event] is read from a [Source] and handed to a [Sink] by a [Pump]. If the sink refuses it
// for good, it goes to the [DeadLetters]. The package knows neither where events are kept nor
// how a relay is configured, so that a Go program can bring a sink or a source of its own.
package relay

import (
	"strings"
	"time"
)

// Event is one event, with the attributes of CloudEvents 1.0 and the body as
// it was received.
//
// An event and everything it points to are immutable: several pumps may share one decoded
// copy, and a sink may keep a reference for as long as it likes.
type Event struct {
	// ID is the CloudEvents id. It stays the same when the event is pushed again or delivered
	// again: it is the body's own event_id, or else a hash of source, time and body.
	ID string `json:"id"`
	// Source is the CloudEvents source: "/projects/P/environments/E" for the pushed events of
	// an environment, and [TrailSource] for the relay's own. ID is unique within a Source.
	Source string `json:"source,omitempty"`
	// Type is the CloudEvents type: "event_log.ACTION" for pushed events, and
	// "settings.changed", "streaming.changed" and the like for the relay's own.
	Type string `json:"type,omitempty"`
	// Subject is the CloudEvents subject. It may be empty.
	Subject string `json:"subject,omitempty"`
	// Time is when the event happened according to its sender, with a precision of a
	// nanosecond. It may be hours in the past, or in the future.
	Time time.Time `json:"time,omitzero"`
	// Received is when the relay received the event, by the relay's clock. For the entries and
	// checkpoints of the audit trail it is Time, since nothing vouches for another.
	Received time.Time `json:"received,omitzero"`
	// ContentType is the media type of Body.
	ContentType string `json:"content_type,omitempty"`
	// Project and Environment are slugs of the workspace; Environment is empty if the event
	// concerns a whole project.
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Labels are the sender's stream labels (Loki) or tags (Datadog), followed
	// by the entry's own structured metadata. Names may repeat.
	Labels []Label `json:"labels,omitempty"`
	// Body is the event as received, byte for byte.
	Body []byte `json:"body_base64,omitempty"`

	// Record is the record of the journal that the event stands in, as its event number Index, from
	// 0. The journal sets both where a sink asks for them, so that the sink knows an event again
	// that is delivered again. A dead letter and a replay have no Record.
	Record *Record `json:"-"`
	Index  int     `json:"-"`
}

// Record is a record of a journal: its position, and its checksum, by which a journal that was
// set back is noticed.
type Record struct{ Position, Checksum uint64 }

// Label is a name and a value that were sent along with an event's body.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SpecVersion is the version of CloudEvents that [Event.Attributes] follows.
const SpecVersion = "1.0"

// Attributes yields the CloudEvents context attributes of e in a fixed order. The names have no
// "ce_" or "ce-" prefix of a protocol binding, and optional attributes that are empty are left
// out. "project", "environment" and "receivedtime" are extensions. datacontenttype is not among
// the attributes, since bindings carry it in a header of its own (CloudEvents 1.0.2, "binary
// content mode").
func (e *Event) Attributes(yield func(name, value string) bool) {
	optional := func(name, value string) bool { return value == "" || yield(name, value) }
	_ = yield("specversion", SpecVersion) &&
		yield("id", e.ID) &&
		yield("source", e.Source) &&
		yield("type", e.Type) &&
		optional("subject", e.Subject) &&
		yield("time", formatTime(e.Time)) &&
		optional("project", e.Project) &&
		optional("environment", e.Environment) &&
		yield("receivedtime", formatTime(e.Received))
}

// formatTime returns t as RFC 3339 in UTC, with as many decimals as are needed.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// TrailSource is the Source of the audit trail's entries and checkpoints, and of nothing else.
// No push can have it: the source of a pushed event comes from [SourceOf], whatever the event
// contains and whatever the environment is named. So nobody can push an event with the
// predictable id of a future entry.
const TrailSource = "/trail"

// OfTrail reports whether e is an entry or a checkpoint of the audit trail. Earlier versions
// gave those their environment's source, but no pushed event has a type like theirs.
func (e *Event) OfTrail() bool {
	return e.Source == TrailSource || e.Type != pushedType && !strings.HasPrefix(e.Type, pushedType+".")
}

// pushedType is how the type of each pushed event begins, whatever its body says.
const pushedType = "event_log"

// SourceOf returns the Source of an environment's pushed events, or that of a project if
// environment is empty. It begins with "/projects/", and since a slug contains no slash, no two
// environments share a Source.
func SourceOf(project, environment string) string {
	if environment == "" {
		return "/projects/" + project
	}
	return "/projects/" + project + "/environments/" + environment
}
