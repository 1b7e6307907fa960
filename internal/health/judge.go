package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

const (
	// A stream is late if one event in ten is later than lateFrom.
	lateFrom = 10 * time.Minute
	// A last push of the age forgotten no longer counts, unless the environment's rhythm
	// expects none yet.
	forgotten = 24 * time.Hour
	// gappedFor is how long a gap is told of after its end.
	gappedFor = 24 * time.Hour
	// inFlight is the time for pushes under way when a stream was disabled.
	inFlight = 30 * time.Second
)

// Judge gives the state of an environment. It is pure.
func Judge(e *Evidence, now time.Time) Verdict {
	for _, judge := range judges {
		if v, is := judge(e, now); is {
			return v
		}
	}
	return flowing(e, now)
}

func misdirected(e *Evidence, now time.Time) (Verdict, bool) {
	d := &e.Declared
	if !e.fresh(now) || !d.elsewhere() {
		return Verdict{}, false
	}
	return Verdict{
		State:  Misdirected,
		Reason: fmt.Sprintf("the API shows the destination %s, not the configured one", destination(d)),
		Action: cmp.Or(d.Advice, fmt.Sprintf("the relay sets it back, unless streaming.dry_run is set; see `auditrelay streaming plan %s`", e.Environment)),
	}, true
}

func destination(d *Declared) string {
	if d.Destination == "" {
		return string(d.DestinationType)
	}
	return fmt.Sprintf("%s (%s)", d.Destination, d.DestinationType)
}

func disabled(e *Evidence, now time.Time) (Verdict, bool) {
	d := &e.Declared
	v := Verdict{State: Disabled, Action: d.Advice}
	switch {
	case d.Finding == streaming.FindingAbsent && now.Sub(e.LastPush) > recently:
		v.Reason = "the API knows no such environment"
	case !e.fresh(now):
		return Verdict{}, false
	case d.DestinationType == "" && len(d.Differs) > 0:
		v.Reason = "the API shows no streaming config: the event log goes nowhere"
		v.Action = cmp.Or(v.Action, fmt.Sprintf("the relay sets one, unless streaming.dry_run is set; see `auditrelay streaming plan %s`", e.Environment))
	case d.DestinationType == "" || d.Status == "" || d.Status == management.StatusActive || e.arriving(d.StatusSince.Add(inFlight), now):
		return Verdict{}, false
	default:
		v.Since = d.StatusSince
		v.Reason = fmt.Sprintf("the API declares the stream %s, not ACTIVE; events of this time are never sent later", d.Status)
		v.Action = cmp.Or(v.Action, fmt.Sprintf("enable the event log streaming of %s in the dashboard: the API has no operation for it", e.Environment))
	}
	return v, true
}

// notHere judges an environment whose events go elsewhere, or nowhere, as configured.
func notHere(e *Evidence, now time.Time) (Verdict, bool) {
	if e.Here || !e.Arrivals.LastPush.IsZero() {
		return Verdict{}, false
	}
	v := Verdict{State: Unknown, Reason: "its events do not pass here"}
	switch d := &e.Declared; {
	case !d.Watched:
		v.Reason += ", and the relay does not look at its streaming config"
	case d.stale(e.Started, now):
		v.Reason += ", and " + staleReason(e)
		v.Action = lookAction
	case d.LastLook.IsZero():
	case d.DestinationType == "":
		v.Reason += ": the API shows no streaming config"
	default:
		v.Reason += ": the API declares its stream to " + destination(d) + " " + string(d.Status)
		if !e.Asked {
			v.Reason += "; not watched: the configuration has no access to look for its events there"
		}
	}
	return v, true
}

const lookAction = "see that the relay reaches the management API: the section workspace of /status has its error"

func staleReason(e *Evidence) string {
	if e.Declared.LastLook.IsZero() {
		return "the API has shown nothing since the relay started"
	}
	return "the API was last read at " + clock(e.Declared.LastLook)
}

// neverSeen judges an environment without any push yet.
func neverSeen(e *Evidence, now time.Time) (Verdict, bool) {
	if !e.LastPush.IsZero() {
		return Verdict{}, false
	}
	v := Verdict{
		State: Unknown, Reason: "no push has arrived yet",
		Action: fmt.Sprintf("log in to %s once, and look again: a push should arrive within a minute, "+
			"unless the relay's log tells of failing TLS handshakes", e.Environment),
	}
	switch {
	case e.fresh(now) && e.Declared.DestinationType == "":
		v.Reason += ", and the API shows no streaming config: the event log goes nowhere"
		v.Action = fmt.Sprintf("create a destination with this relay's host name and the configured credential for %s in the dashboard, and enable it", e.Environment)
	case e.fresh(now):
		v.Reason += fmt.Sprintf(", though the API declares the stream to %s %s", destination(&e.Declared), e.Declared.Status)
	case e.Declared.stale(e.Started, now):
		v.Reason, v.Action = v.Reason+", and "+staleReason(e), lookAction
	case e.Declared.Watched:
		v.Reason, v.Action = "no push has arrived yet, and the API was not read yet", ""
	}
	return v, true
}

func silent(e *Evidence, now time.Time) (Verdict, bool) {
	until, known := e.usual()
	switch {
	case !known:
		return Verdict{}, false
	case !now.Before(until):
	case e.Hushed: // a restart is no end of it
		until, _ = e.Model.SilentAfter(e.LastNew)
	default:
		return Verdict{}, false
	}
	reason := fmt.Sprintf("no push since then, and by this environment's rhythm one was due by %s", clock(until))
	if e.fresh(now) {
		reason += fmt.Sprintf("; the API declares the stream %s all the same", e.Declared.Status)
	}
	if now.Sub(e.LastPush) < recently && e.LastPush.Sub(e.LastNew) > repeating {
		return repeated(e), true
	}
	return Verdict{
		State: Silent, Since: e.LastNew, Reason: reason,
		Action: fmt.Sprintf("log in to %s once: if no push arrives within a minute, see that the relay's push listener can be reached from outside, "+
			"then disable and enable the stream in the dashboard", e.Environment),
	}, true
}

// A sender repeating itself for longer than `repeating` is in trouble.
const repeating = 30 * time.Second

// repeated judges a stuck sender: it repeats its last push.
func repeated(e *Evidence) Verdict {
	return Verdict{
		State: Silent, Since: e.LastNew,
		Reason: "pushes arrive, but only with events that had come before: the sender seems to miss the relay's answers, and sends nothing new meanwhile",
		Action: fmt.Sprintf("see that a proxy in front of the push listener passes the answers to the pushes of %s, and allows them enough time", e.Environment),
	}
}

func late(e *Evidence, now time.Time) (Verdict, bool) {
	half, tenth := seconds(e.Arrivals.Lateness[0]), seconds(e.Arrivals.Lateness[1])
	if tenth <= lateFrom || !e.arriving(time.Time{}, now) { // without events: not late
		return Verdict{}, false
	}
	return Verdict{
		State: Late,
		Reason: fmt.Sprintf("events of the last ten minutes arrived long after they happened: one in two after %s or more, one in ten after %s or more",
			half.Round(time.Second), tenth.Round(time.Second)),
		Action: "wait: the provider is catching up; rules that read the newest minutes only miss these events",
	}, true
}

// seconds gives a duration, 0 for NaN.
func seconds(s float64) time.Duration {
	if s != s {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// tooOld judges an environment without recent evidence.
func tooOld(e *Evidence, now time.Time) (Verdict, bool) {
	unheard := e.Arrivals.LastPush.IsZero() && e.Declared.Watched && e.Declared.LastLook.IsZero()
	if _, known := e.usual(); known && !unheard {
		return Verdict{}, false // and it is not over: see silent
	}
	age := now.Sub(e.LastPush)
	v := Verdict{State: Unknown, Reason: "the last push came at " + clock(e.LastPush)}
	switch {
	case unheard && !e.Declared.stale(e.Started, now):
		v.Reason += ", before the relay started; the API was not read yet"
	case age > forgotten:
		v.Reason += ", and so few come that their absence says nothing"
		v.Action = fmt.Sprintf("log in to %s once, and look again: a push should arrive within a minute", e.Environment)
	case age > staleAfter*e.Declared.Interval && e.Declared.stale(e.Started, now):
		v.Reason += ", and " + staleReason(e)
		v.Action = lookAction
	default:
		return Verdict{}, false
	}
	return v, true
}

func gapped(e *Evidence, now time.Time) (Verdict, bool) {
	g := e.Gap
	if g == nil || now.Sub(g.Ended) > gappedFor || g.EventsLost < 1 {
		return Verdict{}, false
	}
	lost := g.Lost()
	if e.Waits { // no number is told before it is known
		lost = "late events are waited for, before the missing ones are estimated:"
	}
	v := Verdict{
		State: Gapped, Since: g.Ended,
		Reason: fmt.Sprintf("it flows again; %s from %s to %s (%s)", lost, clock(g.Begun), clock(g.Ended), g.Cause),
		Action: "note the gap for those who rely on complete logs: the provider never sends these events again",
	}
	if g.Entry > 0 {
		v.Action += fmt.Sprintf("; `auditrelay trail annotate %d --reviewer NAME` acknowledges it", g.Entry)
	}
	doubt(&v, e, now)
	return v, true
}

func flowing(e *Evidence, now time.Time) Verdict {
	v := Verdict{State: Flowing, Reason: "pushes arrive"}
	if now.Sub(e.LastPush) >= recently {
		v.Reason = fmt.Sprintf("the last push came at %s; a pause as long is usual, or too little is known of this environment to call it unusual", clock(e.LastPush))
	}
	doubt(&v, e, now)
	return v
}

// doubt adds the API's word to the contrary.
func doubt(v *Verdict, e *Evidence, now time.Time) {
	d := &e.Declared
	switch {
	case d.stale(e.Started, now):
		v.Reason += "; " + staleReason(e)
	case e.fresh(now) && d.Status != "" && d.Status != management.StatusActive:
		v.Reason += fmt.Sprintf(", although the API declares the stream %s", d.Status)
		v.Action = fmt.Sprintf("look at the event log streaming of %s in the dashboard: its pushes may end at any time", e.Environment)
	}
}

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
