package health

import (
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// Evidence is the input of [Judge].
type Evidence struct {
	Environment credentials.Environment
	// Here: the environment is configured to push to this relay.
	Here bool
	// Asked: the configuration lets the relay ask a foreign destination for its events.
	Asked bool
	// Generated: the relay itself sets the credential of its pushes.
	Generated bool
	Declared  Declared
	// Arrivals are those of this run.
	Arrivals received.Snapshot
	Seen
	// Runs are the refusals without a good push since, by reason; of this run or an
	// earlier one.
	Runs map[string]received.Refusals
	// Series are the refusals that go on among good pushes, by reason.
	Series map[string]Series
	// Model is the environment's rhythm.
	Model *Rhythm
	// Started is when this run began to watch.
	Started time.Time
	// Kept is when a trouble keeping all pushes away was last seen; zero: not in this run.
	Kept time.Time
	// Hushed: the environment was silent before this run, and no push has come since.
	Hushed bool
	// Gap is the newest one with an end; nil: none. Waits: late events may still lower its
	// estimate.
	Gap   *Gap
	Waits bool
}

// Seen is what was seen last, in this run or an earlier one.
type Seen struct {
	LastPush time.Time `json:"last_push,omitzero"` // zero: none yet
	LastNew  time.Time `json:"last_new,omitzero"`  // the last push with a new event
	// Skew is how far the sender's clock was behind when last judged; below 0: ahead; 0: it was right.
	Skew time.Duration `json:"skew,omitempty"`
}

// Series are refused pushes that go on, whether others are taken or not.
type Series struct {
	Since time.Time
	Came  int64 // the events that came since then all the same
}

// Declared is the API's word on an environment's stream. Without a LastLook, there is none in this
// run.
type Declared struct {
	streaming.Health
	// Watched: the relay looks at the API for this environment.
	Watched bool
	// StatusSince is when a look first showed the present Status.
	StatusSince time.Time
	// Interval is the time between two looks.
	Interval time.Duration
}

// After staleAfter intervals, an observation no longer counts.
const staleAfter = 3

// stale reports whether the last look is too old to count.
func (d *Declared) stale(started, now time.Time) bool {
	if !d.Watched {
		return false
	}
	last := d.LastLook
	if last.IsZero() {
		last = started
	}
	return now.Sub(last) > staleAfter*d.Interval
}

// fresh reports whether a recent look has succeeded.
func (e *Evidence) fresh(now time.Time) bool {
	return e.Declared.Watched && !e.Declared.LastLook.IsZero() && !e.Declared.stale(e.Started, now)
}

// elsewhere reports whether the API shows another destination.
func (d *Declared) elsewhere() bool {
	return d.DestinationType != "" && slices.ContainsFunc(d.Differs, func(field string) bool { return field != "secret" })
}

// usual is when the present silence becomes unusual; false where nobody can tell.
func (e *Evidence) usual() (until time.Time, known bool) {
	if e.LastPush.IsZero() {
		return time.Time{}, false
	}
	return e.Model.SilentAfter(e.lastChance())
}

// lastChance is the last push with a new event, or when one could come at the earliest.
func (e *Evidence) lastChance() time.Time {
	last := e.LastNew
	for _, t := range []time.Time{e.Started, e.Kept} {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// recently bounds the age of a push as a proof of arriving events.
const recently = 2 * time.Minute

// arriving reports whether pushes came after t, and still come.
func (e *Evidence) arriving(after, now time.Time) bool {
	until, known := e.Model.SilentAfter(e.LastPush)
	return e.LastPush.After(after) && (now.Sub(e.LastPush) < recently || known && now.Before(until))
}
