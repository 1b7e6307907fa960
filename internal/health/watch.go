package health

import (
	"maps"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// watch is one environment. Its keeper's lock guards all of it, except for Environment and page, which
// never change.
type watch struct {
	env    config.Environment
	page   *received.Environment
	settle time.Duration

	Evidence // as of the last look
	// seenUntil is when an earlier process was last known to run; zero: never.
	seenUntil time.Time
	// refusedAtLastPush counts the refused pushes before the present run of them.
	refusedAtLastPush int64

	memory
	held   held
	flood  audit.Entry // the newest one about a migration
	lesson lesson
	hour   hour
	// refused counts the refused pushes by reason.
	refused map[string]*hour

	changed bool // the file is out of date
	entries entries
}

// step takes a look at the environment, and judges it.
func (w *watch) step(h streaming.Health, now time.Time) {
	w.look(h)
	w.hour.note(now.Sub(w.Started), w.Arrivals.Events)
	w.Generated, w.Series, w.Hushed = w.generated(), w.series(now), w.hushed()
	w.Gap, w.Waits = w.newest(), w.waits()
	before := w.Skew
	if w.Skew = w.skew(); before > 0 && w.Skew == 0 { // what seemed late was of the clock
		w.page.ForgetLateness()
		w.Arrivals.Lateness = [3]float64{}
	}
	v := Judge(&w.Evidence, now)
	v.Reason += migration.Explains(&w.flood, now)
	if v.State == Disabled || v.State == Misdirected {
		w.Kept = now
	}
	w.follow(v, w.fresh(now), now)
	w.learn(v, now)
	w.held.judged(v, w.Declared.Interval, now)
}

// series tells the refusals that go on, as of now.
func (w *watch) series(now time.Time) map[string]Series {
	all := map[string]Series{}
	for reason, r := range w.Arrivals.Refusals {
		h := w.refused[reason]
		if h == nil {
			h = &hour{}
			w.refused[reason] = h
		}
		h.note(now.Sub(w.Started), r.Count)
		if first, goesOn := h.goesOn(); goesOn {
			all[reason] = Series{Since: w.Started.Add(time.Duration(first) * time.Minute), Came: w.hour.from(first)}
		}
	}
	return all
}

// hushed reports a silence lasting since before this run.
func (w *watch) hushed() bool {
	g := w.Open
	return g != nil && g.is(Silent) && w.Arrivals.LastNew.IsZero()
}

// look takes over the declared and the arrived.
func (w *watch) look(h streaming.Health) {
	w.Arrivals = w.page.Snapshot()
	if w.Arrivals.LastPush.After(w.LastPush) {
		w.LastPush = w.Arrivals.LastPush
	}
	if w.Arrivals.LastNew.After(w.LastNew) {
		w.LastNew = w.Arrivals.LastNew
	}
	w.Runs = map[string]received.Refusals{}
	maps.Copy(w.Runs, w.Earlier)
	for reason, r := range w.Arrivals.Refusals {
		if r.Last.IsZero() {
			continue
		}
		if before, some := w.Earlier[reason]; some && before.Last.After(w.LastPush) {
			r.First = before.First
		}
		w.Runs[reason] = r
	}
	refusing := false
	for _, r := range w.Runs {
		refusing = refusing || r.Last.After(w.LastPush)
	}
	if !refusing {
		w.refusedAtLastPush = w.refusedPushes()
	}
	w.declare(h)
}

// declare takes over the API's word; there is none before the relay looks at it.
func (w *watch) declare(h streaming.Health) {
	d := &w.Declared
	if h.Project == "" {
		return
	}
	switch {
	case d.LastLook.IsZero() && !h.LastLook.IsZero() && w.Word.is(h):
		d.StatusSince = w.Word.Since
	case h.Status != d.Status || d.StatusSince.IsZero():
		d.StatusSince = h.LastLook
	}
	d.Health = h
}

func (w *watch) refusedPushes() (n int64) {
	for _, r := range w.Arrivals.Refusals {
		n += r.Count
	}
	return n
}

// generated reports whether the relay sets the environment's credential.
func (w *watch) generated() bool {
	return w.env.Stream != nil && w.env.Stream.Relay != nil && w.mode() == config.ModeEnforce
}

// lesson is the span to learn from next: from one push to a later one.
type lesson struct {
	from   time.Time // the last push learnt from; zero: none in this run
	before received.Totals
	spoilt bool // there was trouble since
}

// leastLesson is the least span to learn from.
const leastLesson = time.Second

// learn gives the time between pushes to the rhythm, at the later push. Silence itself is a
// lesson, as the model takes it for rare, and so are far too few events; time without a chance
// for a push is none, nor are the events of a migration.
func (w *watch) learn(v Verdict, now time.Time) {
	l, push := &w.lesson, w.Arrivals.LastNew
	if v.State.loses() && !v.State.ofArrivals() {
		w.Model.Forget()
		l.spoilt = true
	}
	l.spoilt = l.spoilt || v.State == Late || !w.Here && v.State == Unknown || migration.Explains(&w.flood, now) != ""
	for _, p := range w.unsettled() {
		l.spoilt = l.spoilt || !p.ofArrivals()
	}
	span := push.Sub(l.from)
	if push.IsZero() || span < leastLesson {
		return
	}
	if !l.from.IsZero() && !l.spoilt {
		events := w.Arrivals.Events - l.before.Events
		w.Model.Observe(l.from, push, events, w.Arrivals.Pushes-l.before.Pushes)
		w.Recent.add(span, events)
	}
	*l = lesson{from: push, before: w.Arrivals.Totals}
}

// start begins this run's watch. The time since the relay was last known to run is a gap; it
// has cost nothing where the provider sends its events again. A gap that is still open goes
// on.
func (w *watch) start(now time.Time) {
	w.Started = now
	w.setBack(now)
	g := &w.gaps
	if w.LastPush.IsZero() || !w.Here || g.Open != nil { // nothing is lost elsewhere
		return
	}
	since := w.LastPush
	if w.seenUntil.After(since) && w.seenUntil.Before(now) {
		since = w.seenUntil
	}
	if n := len(g.Past); n > 0 {
		if g.Past[n-1].Ended.After(since) {
			since = g.Past[n-1].Ended
		}
		if n >= maxGaps { // of a relay that falls again and again, without a push meanwhile
			g.Open, g.Past = g.Past[n-1], g.Past[:n-1]
			w.end(now)
			return
		}
	}
	w.begin(Gap{Cause: CauseRelayDown, Reason: "the relay was down", Begun: since}, now)
	w.end(now)
}

// setBack moves the times of earlier processes into the past, where the clock was set back:
// newer pushes must count.
func (w *watch) setBack(now time.Time) {
	latest := w.LastPush
	for _, r := range w.Earlier {
		if r.Last.After(latest) {
			latest = r.Last
		}
	}
	for _, p := range w.unsettled() {
		if p.Ended.After(latest) {
			latest = p.Ended
		}
	}
	ahead := latest.Sub(now)
	if ahead <= 0 {
		return
	}
	back := func(t time.Time) time.Time {
		if t.IsZero() { // it has not come
			return t
		}
		return t.Add(-ahead)
	}
	w.LastPush, w.LastNew = back(w.LastPush), back(w.LastNew)
	for _, p := range w.unsettled() {
		p.Begun, p.Ended = back(p.Begun), back(p.Ended)
		p.span.Set(p.Begun, p.Ended)
	}
	for reason, r := range w.Earlier {
		w.Earlier[reason] = received.Refusals{Count: r.Count, First: back(r.First), Last: back(r.Last)}
	}
}

// noted takes a push of an earlier process for the last one, if it is.
func (w *watch) noted(received time.Time) {
	if received.After(w.LastNew) && (w.Started.IsZero() || !received.After(w.Started)) {
		w.LastNew = received
	}
	if !received.After(w.LastPush) || !w.Started.IsZero() && received.After(w.Started) {
		return
	}
	w.LastPush = received
	if n := len(w.Past); n > 0 {
		p := w.Past[n-1]
		if p.Cause == CauseRelayDown && received.After(p.Begun) && received.Before(p.Ended) {
			p.Begun = received
			p.span.Set(p.Begun, p.Ended)
		}
	}
}

// minutesKept is how many whole minutes an [hour] has.
const minutesKept = 60

// hour counts events, or refused pushes, of the last minutes, by time since the watch began: a jump of the machine's
// clock changes nothing. The zero value has seen nothing.
type hour struct {
	counts [minutesKept + 1]int64 // by minute, in a ring
	minute int64                  // the present one
	total  int64                  // at the last note
	began  bool
}

// note takes in how many of them there were in all, after a time.
func (h *hour) note(since time.Duration, total int64) {
	if !h.began {
		h.began, h.total = true, total
	}
	minute := max(h.minute, int64(since/time.Minute))
	for m := max(h.minute+1, minute-minutesKept); m <= minute; m++ {
		h.counts[m%int64(len(h.counts))] = 0
	}
	h.counts[minute%int64(len(h.counts))] += total - h.total
	h.minute, h.total = minute, total
}

// whole are the counts of the whole minutes, the oldest first.
func (h *hour) whole() []int64 {
	list := []int64{}
	for m := max(0, h.minute-minutesKept); m < h.minute; m++ {
		list = append(list, h.counts[m%int64(len(h.counts))])
	}
	return list
}

// from is the count since the beginning of a minute.
func (h *hour) from(minute int64) (n int64) {
	for m := max(minute, h.minute-minutesKept, 0); m <= h.minute; m++ {
		n += h.counts[m%int64(len(h.counts))]
	}
	return n
}

// What is counted goes on if it was seen in goesOnIn of the last goesOnOf minutes.
const goesOnIn, goesOnOf = 3, 10

// goesOn returns the first of these minutes if it goes on.
func (h *hour) goesOn() (first int64, goesOn bool) {
	seen := 0
	for m := h.minute; m > h.minute-goesOnOf && m >= 0; m-- {
		if h.counts[m%int64(len(h.counts))] > 0 {
			first, seen = m, seen+1
		}
	}
	return first, seen >= goesOnIn
}
