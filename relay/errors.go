package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// marked is an error with a mark. Its text and its chain are those of the error alone.
type marked[M any] struct {
	error

	mark M
}

func (e *marked[M]) Unwrap() error { return e.error }

// markOf returns the outermost mark of a kind that err, or an error it wraps, has.
func markOf[M any](err error) (mark M, ok bool) {
	var e *marked[M]
	if ok = errors.As(err, &e); ok {
		mark = e.mark
	}
	return mark, ok
}

type permanentMark struct{}

// Permanent marks err as an error that no retry can cure. The pump finds the events that cause
// it, and only those go to the dead letters.
func Permanent(err error) error { return &marked[permanentMark]{error: err} }

// IsPermanent reports whether err, or an error it wraps, is marked with [Permanent].
func IsPermanent(err error) bool {
	_, ok := markOf[permanentMark](err)
	return ok
}

// RetryAfter marks err with the destination's request to retry no sooner than d from now, as
// HTTP's Retry-After does.
func RetryAfter(err error, d time.Duration) error { return &marked[time.Duration]{err, d} }

// RetryDelay returns the delay of an error marked with [RetryAfter], and whether err is such an
// error.
func RetryDelay(err error) (time.Duration, bool) { return markOf[time.Duration](err) }

// ErrUntried is the error of an event that was not sent, because others of its delivery were
// refused for good, and go to the dead letters first. The pump tries it again at once.
var ErrUntried = errors.New("not tried, since an event of the same delivery was refused")

// PartialError is the error of a delivery in which every event was acknowledged except for
// those in Failures. The error of each failure is classified like that of a whole delivery.
type PartialError struct {
	Failures []Failure // in ascending order of Index, each index once
}

// Failure is one event that was not acknowledged.
type Failure struct {
	Index int // index into the events given to Deliver
	Err   error
}

func (e *PartialError) Error() string {
	if len(e.Failures) == 0 {
		return "partial delivery with no failures named"
	}
	if len(e.Failures) == 1 {
		return fmt.Sprintf("1 event was not acknowledged: %v", e.Failures[0].Err)
	}
	return fmt.Sprintf("%d events were not acknowledged, the first: %v", len(e.Failures), e.Failures[0].Err)
}

// Unwrap makes the failures' errors visible to errors.Is. Each failure has its own class; the
// error as a whole has none.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// Outcome makes the error of a delivery from its failures. It is nil without failures. If all
// events failed and none of them permanently, it is the error with the longest wait, and
// otherwise a [PartialError]. Each index occurs once in failures, in any order. Outcome does
// not keep or change the slice.
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
