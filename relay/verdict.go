package relay

import (
	"errors"
	"time"
)

// verdict says what becomes of a delivery's events.
type verdict struct {
	delivered []Event       // were acknowledged in spite of the error
	refused   []Failure     // go to the dead letters
	again     []Event       // are tried again, in this order
	split     bool          // some event among them is refused, and it is unknown which
	suspect   bool          // one of them may be the reason, and it is unknown which
	after     time.Duration // wait at least this long
	atOnce    bool          // do not wait: what is tried again was not sent, and something was settled
	cause     error         // why they are tried again
}

// judge classifies an error. Nothing else does.
func judge(events []Event, err error) verdict {
	var partial *PartialError
	if errors.As(err, &partial) && plausible(partial, len(events)) {
		return judgePartial(events, partial)
	}
	if !IsPermanent(err) {
		after, _ := RetryDelay(err)
		return verdict{again: events, suspect: IsSuspect(err), after: after, cause: err}
	}
	if len(events) == 1 {
		return verdict{refused: []Failure{{Index: 0, Err: err}}}
	}
	return verdict{split: true}
}

func judgePartial(events []Event, partial *PartialError) verdict {
	var v verdict
	next := 0
	for _, f := range partial.Failures {
		v.delivered = append(v.delivered, events[next:f.Index]...)
		next = f.Index + 1
		if IsPermanent(f.Err) {
			v.refused = append(v.refused, f)
			continue
		}
		after, _ := RetryDelay(f.Err)
		v.again, v.after = append(v.again, events[f.Index]), max(v.after, after)
		if v.cause == nil {
			v.cause = f.Err
		}
	}
	v.delivered = append(v.delivered, events[next:]...)
	v.atOnce = errors.Is(v.cause, ErrUntried) && len(v.again) < len(events)
	return v
}

// plausible reports whether the error names events of the delivery, in order. If a sink names
// none, or names others, it is not believed, and everything is delivered again.
func plausible(partial *PartialError, n int) bool {
	last := -1
	for _, f := range partial.Failures {
		if f.Index <= last || f.Index >= n || f.Err == nil {
			return false
		}
		last = f.Index
	}
	return last >= 0
}
