package health

import "time"

// held is the present state: a verdict after it has held for a moment, so nothing flaps.
type held struct {
	verdict Verdict
	// known: a verdict has counted, in this run or an earlier one. Until then the state
	// is Unknown.
	known bool
	// before is the state before, empty for none; due: the transition may not be in the
	// trail yet; skipped counts those summed up with the next.
	before  State
	due     bool
	skipped int

	next      State // would count if it held
	nextSince time.Time
}

// How long a verdict must hold.
const (
	holdTrouble = 1500 * time.Millisecond // three looks, each a second after the one before
	holdOther   = 10 * time.Second        // from trouble to anything else
)

// judged takes the verdict of this moment.
func (h *held) judged(v Verdict, interval time.Duration, now time.Time) {
	if h.known && v.State == h.verdict.State {
		h.next = ""
		if v.Since.IsZero() || v.State != Gapped {
			v.Since = h.verdict.Since
		}
		h.verdict = v
		return
	}
	if v.State != h.next {
		h.next, h.nextSince = v.State, now
	}
	if !h.known { // until then, with the reason of this moment
		h.verdict = Verdict{State: Unknown, Reason: v.Reason, Since: h.nextSince, Action: v.Action}
		if v.State != Unknown {
			h.verdict.Reason, h.verdict.Action = "the relay has just started", ""
		}
	}
	if now.Sub(h.nextSince) < h.hold(v.State, interval) {
		return
	}
	if v.Since.IsZero() {
		v.Since = h.nextSince
	}
	if h.due {
		h.skipped++
	} else {
		h.before = h.verdict.State
	}
	h.due = h.known || !v.State.good() && v.State != Unknown
	h.verdict, h.known, h.next = v, true, ""
}

// hold is how long a verdict must hold to count.
func (h *held) hold(next State, interval time.Duration) time.Duration {
	switch {
	case next == Unknown:
		return max(holdOther, staleAfter*interval)
	case !h.known && next.good():
		return 0
	case !h.known || h.verdict.State.good() || h.verdict.State == Unknown:
		return holdTrouble
	}
	return holdOther
}
