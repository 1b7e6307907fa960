// Package received counts the pushes and events of each environment, and its refused
// pushes by reason. Ingest writes it, health reads it.
//
// Its memory is about 4 KiB for each environment, whatever arrives. Rates and lateness
// cover a sliding window, kept by time since the book was made: so a jump of the
// machine's clock neither empties nor stretches it.
package received

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// Book counts arrivals by environment. It is safe for concurrent use.
type Book struct {
	now     func() time.Time
	start   time.Time
	refused atomic.Pointer[func(credentials.Environment)]

	environments sync.Map // credentials.Environment to *Environment
}

// New makes an empty book. Windows follow now's monotonic clock, if it has one.
func New(now func() time.Time) *Book { return &Book{now: now, start: now()} }

// Of returns the page of an environment, and makes it if it is missing. It is never nil.
// Pass configured environments only: a page stays until it is forgotten.
func (b *Book) Of(env credentials.Environment) *Environment {
	e, ok := b.environments.Load(env)
	if !ok {
		e, _ = b.environments.LoadOrStore(env, &Environment{book: b, name: env})
	}
	return e.(*Environment) //nolint:errcheck // nothing else is stored
}

// Forget removes the page of an environment that is no longer configured.
func (b *Book) Forget(env credentials.Environment) { b.environments.Delete(env) }

// Each calls f for each environment, in no order.
func (b *Book) Each(f func(*Environment)) {
	b.environments.Range(func(_, e any) bool {
		f(e.(*Environment)) //nolint:errcheck // nothing else is stored
		return true
	})
}

// OnRefused sets the one function to call when a push with an environment's user name
// brings a wrong credential. It is called without locks, before the push is answered, and
// must not block. Anybody may know a user name: it must bound its own work.
func (b *Book) OnRefused(f func(credentials.Environment)) { b.refused.Store(&f) }

// Environment counts the arrivals of one environment.
type Environment struct {
	book *Book
	name credentials.Environment

	mu       sync.Mutex // guards all below
	totals   Totals
	others   Totals // the part of totals that other relays took
	lastPush time.Time
	lastNew  time.Time
	newest   int64 // Unix nanoseconds, 0 for none
	looked   time.Time
	refusals [len(reasons)]Refusals
	good     [len(reasons)]bool // a good push came after the last refusal
	rate     rate
	lateness window
	spans    []*Span
	clock    ages
	late     float64 // seconds, of all events
}

// Name returns the environment's own name.
func (e *Environment) Name() credentials.Environment { return e.name }

// Push is a push after the disk has all of it.
type Push struct {
	// Events are new, Duplicates were durable before. Bytes are those of the new bodies.
	Events, Duplicates, Bytes int64
	// Newest is the newest time of its events, in Unix nanoseconds; 0 for none.
	Newest int64
	// Lateness holds the new events' lateness. It is read only, and not kept; nil is none.
	Lateness *Lateness
}

// Took counts a durable push. It allocates nothing.
func (e *Environment) Took(p Push) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(p)
}

// OtherTook counts a push that another relay of the cluster has made durable. [Environment.Own]
// leaves it out.
func (e *Environment) OtherTook(p Push) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(p)
	e.others.add(p)
}

func (t *Totals) add(p Push) {
	t.Pushes++
	t.Events += p.Events
	t.Bytes += p.Bytes
	t.Duplicates += p.Duplicates
}

// take counts a push. mu is held.
func (e *Environment) take(p Push) {
	now := e.book.now()
	elapsed := now.Sub(e.book.start)
	e.totals.add(p)
	e.lastPush = now
	if p.Events > 0 || p.Duplicates == 0 {
		e.lastNew = now
	}
	// A sender's clock may be years ahead, and must not hide all later events.
	e.newest = max(e.newest, min(p.Newest, now.UnixNano()))
	for i := range e.good {
		e.good[i] = true
	}
	e.rate.add(elapsed, p.Events)
	if p.Newest > noTime {
		e.clock.add(elapsed, now.Sub(time.Unix(0, p.Newest)))
	}
	if p.Lateness != nil {
		e.lateness.add(elapsed, p.Lateness)
		for _, s := range e.spans {
			s.add(now, p.Lateness)
		}
		e.late += p.Lateness.sum
	}
}

// Saw takes the newest event at a foreign destination, as of `looked`, for the newest
// push; zero for no event.
func (e *Environment) Saw(newest, looked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looked = looked
	if newest.After(looked) { // by a clock ahead
		newest = looked
	}
	if newest.After(e.lastPush) {
		e.totals.Pushes++
		e.lastPush, e.lastNew, e.newest = newest, newest, newest.UnixNano()
	}
}

// The reasons to refuse a push of an environment.
const (
	Credential  = "credential"  // its user name with a wrong password
	Quota       = "quota"       // its quota of events or bytes a second
	Budget      = "budget"      // its share of the disk budget, or all of it, waits for sinks
	Form        = "form"        // malformed, in part or whole, or too slow
	TooLarge    = "too_large"   // a limit on sizes
	Aborted     = "aborted"     // its body ended early, or its sender was gone before the answer
	Busy        = "busy"        // too many pushes, or bytes of them, at once
	Unavailable = "unavailable" // the journal did not take it
)

var reasons = [...]string{Credential, Quota, Budget, Form, TooLarge, Aborted, Busy, Unavailable}

// Reasons returns all reasons of refusals.
func Reasons() []string { return reasons[:] }

// Refusals are the refused pushes of one reason.
type Refusals struct {
	// Count counts since the book was made.
	Count int64 `json:"count"`
	// First and Last are those of the newest run, without a good push between them; zero
	// for none.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Refused counts a refused push. An unknown reason counts as Unavailable.
func (e *Environment) Refused(reason string) {
	now, i := e.book.now(), slices.Index(reasons[:], reason)
	if i < 0 {
		i = len(reasons) - 1
	}
	e.mu.Lock()
	r := &e.refusals[i]
	if r.Count == 0 || e.good[i] {
		r.First = now
	}
	r.Count, r.Last, e.good[i] = r.Count+1, now, false
	e.mu.Unlock()
	if tell := e.book.refused.Load(); tell != nil && reason == Credential {
		(*tell)(e.name)
	}
}

// Totals count since the book was made.
type Totals struct{ Pushes, Events, Bytes, Duplicates int64 }

// Own returns the counts of what this relay took itself.
func (e *Environment) Own() Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Totals{
		e.totals.Pushes - e.others.Pushes, e.totals.Events - e.others.Events, e.totals.Bytes - e.others.Bytes, e.totals.Duplicates - e.others.Duplicates,
	}
}

// Snapshot is the state of an environment's arrivals at one moment.
type Snapshot struct {
	Totals
	// LastPush is the time of the last push of new or repeated events; zero for none.
	LastPush time.Time
	// LastNew is the last one with a new event.
	LastNew time.Time
	// LastEvent is the newest time of an event, by its sender's word, and not after its
	// arrival; zero for none.
	LastEvent time.Time
	// Looked is when a foreign destination last gave its newest event; zero for pushes to
	// this relay.
	Looked time.Time
	// EventsPerSecond is the mean of the last minute, or since the book was made.
	EventsPerSecond float64
	// Lateness is the median, the 90th and the 99th percentile of arrival minus event
	// time, in seconds: of the new events of the last ten minutes. NaN without any.
	Lateness [3]float64
	// LatenessSum is the sum over all events, in seconds.
	LatenessSum float64
	// Clock is what the newest pushes show of their sender's clock.
	Clock Clock
	// Refusals has each of [Reasons].
	Refusals map[string]Refusals
}

// Snapshot returns the present state.
func (e *Environment) Snapshot() Snapshot {
	elapsed := e.book.now().Sub(e.book.start)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Snapshot{
		Totals: e.totals, LastPush: e.lastPush, LastNew: e.lastNew, Looked: e.looked,
		EventsPerSecond: e.rate.perSecond(elapsed),
		Lateness:        e.lateness.quantiles(elapsed),
		LatenessSum:     e.late,
		Clock:           e.clock.shows(),
		Refusals:        make(map[string]Refusals, len(reasons)),
	}
	if e.newest != 0 {
		s.LastEvent = time.Unix(0, e.newest)
	}
	for i, reason := range reasons {
		s.Refusals[reason] = e.refusals[i]
	}
	return s
}

// rateSeconds is the span of the rate.
const rateSeconds = 60

// rate counts the events of the last minute, by second.
type rate struct {
	events [rateSeconds]int64
	at     [rateSeconds]int64 // the second of each count, from 1
	latest int64
}

func (r *rate) second(elapsed time.Duration) int64 {
	return max(r.latest, int64(elapsed/time.Second)+1)
}

func (r *rate) add(elapsed time.Duration, events int64) {
	r.latest = r.second(elapsed)
	i := r.latest % rateSeconds
	if r.at[i] != r.latest {
		r.at[i], r.events[i] = r.latest, 0
	}
	r.events[i] += events
}

func (r *rate) perSecond(elapsed time.Duration) float64 {
	now, sum := r.second(elapsed), int64(0)
	for i, at := range r.at {
		if at > now-rateSeconds {
			sum += r.events[i]
		}
	}
	return float64(sum) / float64(min(now, rateSeconds))
}
