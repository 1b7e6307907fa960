package relay

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// History is what became of the deliveries to a sink, as far as this process knows and keeps it.
type History struct {
	// Since is when it begins: with the process, or HistoryLength ago.
	Since time.Time `json:"since"`
	// Minutes are those in which something happened, the oldest first.
	Minutes []Minute `json:"minutes"`
	// Failures are the failed attempts by their errors, the newest first; of more than 20 errors, those
	// that came last.
	Failures []FailedAttempts `json:"failures"`
}

// Minute is what became of the deliveries to a sink within a minute of the clock.
type Minute struct {
	Begun time.Time `json:"begun"`
	// Delivered counts events, including those that match left out.
	Delivered int64 `json:"delivered,omitempty"`
	// Failed counts attempts that the sink did not acknowledge as a whole.
	Failed int64 `json:"failed,omitempty"`
	// Refused counts events that the sink refused for good.
	Refused int64 `json:"refused,omitempty"`
}

// FailedAttempts are those whose errors differ by their numbers at most.
type FailedAttempts struct {
	// Error is the newest of them.
	Error string    `json:"error"`
	Class Class     `json:"class"`
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`

	alike string // Error without its numbers
}

const (
	// HistoryLength is how far a history reaches back.
	HistoryLength = 12 * time.Hour
	// mostFailures bounds the errors of a history, and longestFailure the bytes of each.
	mostFailures, longestFailure = 20, 1 << 10
)

// past is the history of one sink.
type past struct {
	began    time.Time
	minutes  []Minute         // ascending
	failures []FailedAttempts // the newest last
}

// add counts something in the present minute. A clock that was set back counts in the newest one.
func (p *past) add(now time.Time, count func(*Minute)) {
	now = now.UTC().Truncate(time.Minute)
	if n := len(p.minutes); n == 0 || p.minutes[n-1].Begun.Before(now) {
		p.minutes = append(p.minutes, Minute{Begun: now})
	}
	count(&p.minutes[len(p.minutes)-1])
	if len(p.minutes) > int(HistoryLength/time.Minute) {
		p.minutes = slices.Delete(p.minutes, 0, 1)
	}
}

func (p *past) failed(now time.Time, text string, class Class) {
	text = strings.ToValidUTF8(strings.Clone(text[:min(len(text), longestFailure)]), "")
	f := FailedAttempts{Class: class, First: now, alike: Digitless(text)}
	if i := slices.IndexFunc(p.failures, func(o FailedAttempts) bool { return o.alike == f.alike && o.Class == class }); i >= 0 {
		f = p.failures[i]
		p.failures = slices.Delete(p.failures, i, i+1)
	}
	f.Error, f.Count, f.Last = text, f.Count+1, now
	p.failures = append(p.failures, f)
	if len(p.failures) > mostFailures {
		p.failures = slices.Delete(p.failures, 0, 1)
	}
}

func (p *past) history(now time.Time) History {
	h := History{Since: now.Add(-HistoryLength), Failures: slices.Clone(p.failures)}
	if p.began.After(h.Since) {
		h.Since = p.began
	}
	slices.Reverse(h.Failures)
	first := slices.IndexFunc(p.minutes, func(m Minute) bool { return m.Begun.Add(time.Minute).After(h.Since) })
	if first >= 0 {
		h.Minutes = slices.Clone(p.minutes[first:])
	}
	return h
}

// History returns the history of the deliveries to a sink.
func (m *Metrics) History(sink string) (h History) {
	m.note(sink, func(now *kept) { h = now.history(time.Now()) })
	return h
}

// Digitless is a text with one 0 in place of each number in it. Errors that differ by a number, such
// as a port or an id, are alike by it.
func Digitless(text string) string { return digits.ReplaceAllString(text, "0") }

var digits = regexp.MustCompile(`[0-9]+`)
