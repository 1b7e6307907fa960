// Package retry is what rooms that try again share: a wait that ends with its context, a loop
// that insists, the reading of Retry-After, and the decision when to log a lasting failure.
package retry

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"time"
)

const (
	// first is the time from the first line to its repetition. Each further interval is
	// three times as long, up to longest.
	first   = time.Minute
	longest = time.Hour
	// calm is the least time between two lines because of changed reasons: a text may
	// differ at each attempt, as by a port number.
	calm = 10 * time.Second
)

// Failure is a failure, perhaps a lasting one. It is logged at its beginning, with each new
// reason, and again at growing intervals: hours of failing are neither hours of silence nor
// thousands of equal lines. The zero value works. Its owner guards it.
type Failure struct {
	began, told time.Time
	every       time.Duration // until the next repetition
	reason      string        // as told
}

// Again notes one more failed attempt, and reports whether to log it.
func (f *Failure) Again(reason string) bool {
	now := time.Now()
	switch {
	case f.began.IsZero():
		f.began, f.every = now, first
	case now.Sub(f.told) >= f.every:
		f.every = min(3*f.every, longest)
	case reason == f.reason || now.Sub(f.told) < calm:
		return false
	}
	f.told, f.reason = now, reason
	return true
}

// Over ends the failure. It reports whether there was one, and returns its log fields.
func (f *Failure) Over() (fields []any, was bool) {
	if f.began.IsZero() {
		return nil, false
	}
	fields = []any{"after", time.Since(f.began).Round(time.Millisecond)}
	*f = Failure{}
	return fields, true
}

var digits = regexp.MustCompile(`[0-9]+`)

// Tell logs how an attempt ended: a failure as [Failure.Again] allows with the error as its reason, and
// the end of it. Errors that differ by numbers alone, such as ports, are one reason. The end of a
// context is no failure.
func (f *Failure) Tell(log *slog.Logger, err error, failed, over string) {
	if err == nil {
		if fields, was := f.Over(); was {
			log.Info(over, fields...)
		}
	} else if !errors.Is(err, context.Canceled) && f.Again(digits.ReplaceAllString(err.Error(), "0")) {
		log.Warn(failed, append(f.Fields(), "error", err)...)
	}
}

// Lasts reports whether the failure is under way.
func (f *Failure) Lasts() bool { return !f.began.IsZero() }

// Due is when the failure is to be logged again, though nobody tries; zero without one.
func (f *Failure) Due() time.Time {
	if f.began.IsZero() {
		return time.Time{}
	}
	return f.told.Add(f.every)
}

// Fields are the log fields of how long it lasts; none at its beginning.
func (f *Failure) Fields() []any {
	lasts := time.Since(f.began).Round(time.Second)
	if f.began.IsZero() || lasts == 0 {
		return nil
	}
	return []any{"failing_for", lasts}
}
