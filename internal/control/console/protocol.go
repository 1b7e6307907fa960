package console

import (
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// Sink describes a sink with a configuration, a position or dead letters.
type Sink struct {
	Name string `json:"name"`
	// Kind is the destination's, such as "kafka"; empty for an unconfigured sink.
	Kind string `json:"kind,omitempty"`
	// Configured: the running relay delivers to it.
	Configured bool `json:"configured"`
	// LagEvents is about how many events the sink has not acknowledged; nil where it is not
	// known. OldestUnacknowledged is when the oldest of them was committed, LagSeconds how long
	// ago; zero without any.
	LagEvents            *int64    `json:"lag_events,omitempty"`
	LagSeconds           float64   `json:"lag_seconds"`
	OldestUnacknowledged time.Time `json:"oldest_unacknowledged,omitzero"`
	// Delivery is of this process; nil for an unconfigured sink.
	*relay.Delivery
	// DeadLetters is their number.
	DeadLetters uint64 `json:"dead_letters"`
	// Position is nil if it has none.
	Position *journal.SinkPosition `json:"position,omitempty"`
}

// Letter is a dead letter.
type Letter struct {
	Sequence uint64    `json:"sequence"`
	Sink     string    `json:"sink"`
	Reason   string    `json:"reason"` // as the sink said
	Attempts int       `json:"attempts"`
	Refused  time.Time `json:"refused"`
	Damage   string    `json:"damage,omitempty"` // why the event cannot be read

	relay.Event     // without its body in lists, since it may hold personal data
	BodyBytes   int `json:"body_bytes"`
}

func letterOf(d *deadletters.Letter, withBody bool) *Letter {
	l := &Letter{
		Sequence: d.Sequence, Sink: d.Sink, Reason: d.Reason, Attempts: d.Attempts, Refused: d.Time, Damage: d.Damage,
		Event: d.Event, BodyBytes: len(d.Event.Body),
	}
	if !withBody {
		l.Body = nil
	}
	return l
}

// ListLetters asks for dead letters.
type ListLetters struct {
	Filter deadletters.Filter `json:"filter"`
	Bodies bool               `json:"bodies,omitempty"`
	// Veiled shows the events as viewers of the console in the browser may see them.
	Veiled bool `json:"veiled,omitempty"`
}

// ReplayLetters asks to hand dead letters to their sink again, or to To.
type ReplayLetters struct {
	Filter deadletters.Filter `json:"filter"`
	To     string             `json:"to,omitempty"`
	DryRun bool               `json:"dry_run,omitempty"`
}

// DiscardLetters asks to remove dead letters.
type DiscardLetters struct {
	Filter deadletters.Filter `json:"filter"`
	DryRun bool               `json:"dry_run,omitempty"`
}

// ReplaySpan asks to hand the kept events from Since until Until to a sink again. A
// zero Until means now.
type ReplaySpan struct {
	Sink   string    `json:"sink"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
	Match  string    `json:"match,omitempty"` // a CEL expression, as in a sink's match
	DryRun bool      `json:"dry_run,omitempty"`
}

// Progress is the progress of a piece of work.
type Progress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
	Unit  string `json:"unit"` // of both: "records" or "dead letters"

	Matched   uint64 `json:"matched"`           // chosen events, as far as the job has looked
	Delivered uint64 `json:"delivered"`         // acknowledged by the sink
	Refused   uint64 `json:"refused"`           // refused by it for good; they are in the dead letters
	Removed   uint64 `json:"removed,omitempty"` // removed dead letters
	Damaged   uint64 `json:"damaged,omitempty"` // of Unit: could not be read
	Missing   uint64 `json:"missing,omitempty"` // of Unit: were gone before they could be read

	// Sinks counts the chosen letters by sink.
	Sinks map[string]uint64 `json:"sinks,omitempty"`
	// Last is the newest chosen dead letter.
	Last uint64 `json:"last,omitempty"`
	// Failing is the error under retry; empty while it works.
	Failing string `json:"failing,omitempty"`
	// Archived are the entries moved to an archive, or to be moved.
	Archived []proof.Archived `json:"archived,omitempty"`
	// Notes are for a person.
	Notes []string `json:"notes,omitempty"`
}

// frame is one line of a stream, apart from the item in it.
type frame struct {
	Progress *Progress  `json:"progress,omitempty"`
	Taps     *TapCounts `json:"tap_counts,omitempty"`
	// Following: all rows before this index have come.
	Following *int64 `json:"following,omitempty"`

	Finished bool   `json:"finished,omitempty"` // the last line, all is well
	Error    string `json:"error,omitempty"`    // the last line, it is not
}

// item is a line with something that was asked for.
type item[T any] struct {
	Item *T `json:"item,omitempty"`
	frame
}
