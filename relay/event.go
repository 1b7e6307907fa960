// Package relay is the vocabulary of the data path and its delivery loop.
//
// An [Event] is read from a [Source], handed to a [Sink] by a [Pump], and where
// the sink refuses it for good it goes to the [DeadLetters]. The package knows
// neither where events are kept nor how a relay is configured, so a Go program
// can bring a sink or a source of its own.
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
	// ID is the CloudEvents id. It is the same at every re-push and every
	// redelivery: the body's own event_id, or a hash of source, time and body.
	ID string
	// Source is the CloudEvents source: "/projects/P/environments/E" for an environment's
	// pushed events, and [TrailSource] for the relay's own. ID is unique within a Source.
	Source string
	// Type is the CloudEvents type: "event_log.ACTION" for pushed events,
	// "settings.changed", "streaming.changed" and the like for the relay's own.
	Type string
	// Subject is the CloudEvents subject; may be empty.
	Subject string
	// Time is when the event happened, as its sender says. Its precision is a
	// nanosecond; it may lie hours in the past, or in the future.
	Time time.Time
	// Received is when the relay took the event in, by the relay's clock.
	Received time.Time
	// ContentType is the media type of Body.
	ContentType string
	// Project and Environment are slugs of the workspace; Environment is empty if the event
	// concerns a whole project.
	Project, Environment string
	// Labels are the sender's stream labels (Loki) or tags (Datadog), followed
	// by the entry's own structured metadata. Names may repeat.
	Labels []Label
	// Body is the event as received, byte for byte.
	Body []byte
}

// Label is a name and a value from beside an event's body.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SpecVersion is the CloudEvents version of [Event.Attributes].
const SpecVersion = "1.0"

// Attributes yields the CloudEvents context attributes of e in a fixed order,
// names without the "ce_" or "ce-" prefix of a protocol binding, empty optional
// ones left out. "project", "environment" and "receivedtime" are extensions.
// It can be ranged over. datacontenttype is not among them: bindings carry it
// in a header of its own (CloudEvents 1.0.2, "binary content mode").
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

// formatTime returns RFC 3339 in UTC with as many decimals as are needed.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// TrailSource is the Source of the audit trail's entries and checkpoints, and of nothing
// else. No push can have it: a pushed event's source comes from [SourceOf], whatever the
// event contains and whatever the environment is named. So the predictable id of a future
// entry cannot be taken in advance.
const TrailSource = "/trail"

// OfTrail reports whether e is an entry or a checkpoint of the audit trail. Earlier versions
// gave those their environment's source, but no pushed event has a type like theirs.
func (e *Event) OfTrail() bool {
	return e.Source == TrailSource || e.Type != pushedType && !strings.HasPrefix(e.Type, pushedType+".")
}

// pushedType begins the type of each pushed event, whatever its body says.
const pushedType = "event_log"

// SourceOf is the Source of an environment's pushed events. Where environment is empty, it
// names a project. It begins with "/projects/", and since a slug holds no slash, no two
// environments share one.
func SourceOf(project, environment string) string {
	if environment == "" {
		return "/projects/" + project
	}
	return "/projects/" + project + "/environments/" + environment
}
