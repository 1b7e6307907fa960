package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Permanent marks err as one that no retry can cure: the pump finds the very
// events that cause it, and only those go to the dead letters.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err, or an error that it wraps, was marked with
// [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryAfter marks err as one that the destination wants tried again no sooner
// than d from now, as by HTTP's Retry-After.
func RetryAfter(err error, d time.Duration) error { return &retryAfterError{err, d} }

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryDelay returns the delay that err was marked with by [RetryAfter], and
// whether it was.
func RetryDelay(err error) (time.Duration, bool) {
	var r *retryAfterError
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.after, true
}

// PartialError says that a delivery was acknowledged but for the events named
// in Failures. Each failure's own error is classified like a whole delivery's.
type PartialError struct {
	Failures []Failure // in ascending order of Index, each index once
}

// Failure is one event of a delivery that was not acknowledged.
type Failure struct {
	Index int // into the events given to Deliver
	Err   error
}

func (e *PartialError) Error() string {
	if len(e.Failures) == 0 {
		return "partial delivery with no failures named"
	}
	return fmt.Sprintf("%d events were not acknowledged, the first: %v", len(e.Failures), e.Failures[0].Err)
}

// Unwrap gives the failures' errors, so that errors.Is finds them. Note that
// the class of a partial delivery is that of each failure, not of the whole.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// Outcome is what Deliver returns for a delivery of that many events, of which
// failures were not acknowledged: nil without failures; where all of them failed and
// none for good, the error that asks for the longest wait; else a [PartialError].
// Each index stands once in failures, in any order. The slice stays the caller's.
func Outcome(events int, failures []Failure) error {
	if len(failures) == 0 {
		return nil
	}
	permanent := func(f Failure) bool { return IsPermanent(f.Err) }
	if len(failures) == events && !slices.ContainsFunc(failures, permanent) {
		return longestWait(failures)
	}
	failures = slices.Clone(failures)
	slices.SortFunc(failures, func(a, b Failure) int { return cmp.Compare(a.Index, b.Index) })
	return &PartialError{Failures: failures}
}

func longestWait(failures []Failure) error {
	return slices.MaxFunc(failures, func(a, b Failure) int {
		wait, _ := RetryDelay(a.Err)
		other, _ := RetryDelay(b.Err)
		return cmp.Compare(wait, other)
	}).Err
}
