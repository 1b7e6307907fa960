package health

import (
	"math"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// maxGaps bounds the gaps kept of an environment: those ended and not settled, the settled
// ones, and those due in the trail.
const maxGaps = 10

// pending is a gap that is not settled: it is open, or late events may still lower its
// estimate.
type pending struct {
	Gap
	span *received.Span // counts its events by their times, in this run
	// late are the events counted before the span, refused the refused pushes counted in
	// earlier runs. refusedBefore are the refused pushes of this run before it.
	late, refused, refusedBefore int64
	// outside counts this run's events outside of it, at its end: so those after the end
	// are known if it goes on.
	outside int64
	noticed time.Time // in this run
}

// gaps follows the gaps of one environment. Each incident is a gap of its own, with its cause
// and its window.
type gaps struct {
	Open *pending `json:"gap,omitempty"` // nil: there is none
	// Past have an end, the newest last; they are settled together, once no other gap has
	// opened for a while. So events that the provider sends again after the last of them
	// still count.
	Past []*pending `json:"gaps_unsettled,omitempty"`
	// Came counts the events that arrived since the first gap of both began, except for
	// those of this run after cameAt of its events.
	Came    int64 `json:"came,omitempty"`
	Settled []Gap `json:"gaps,omitempty"`     // the newest last
	Due     []Gap `json:"gaps_due,omitempty"` // of those, not in the trail yet

	// settleAt is a while after the last event of them that came late, and at most settleBy;
	// zero: no good push has come since the end of the newest. late counts these events then.
	settleAt, settleBy time.Time
	late               int64
	cameAt             int64
	losing             time.Time // when a verdict last meant a loss, in this run
	lost               int64     // the sum of this run
}

// newest is the newest gap with an end that nobody has reviewed, nil for none. After its own
// downtime, the relay waits for the provider's further attempts before it speaks of a loss.
func (g *gaps) newest() *Gap {
	all := slices.DeleteFunc(g.told(), func(gap Gap) bool { return gap.Reviewed })
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}

// review notes the settled gaps whose entries somebody has annotated.
func (w *watch) review(reviewed func(int64) bool) {
	if reviewed == nil {
		return
	}
	for i := range w.Settled {
		if g := &w.Settled[i]; g.Entry > 0 && !g.Reviewed && reviewed(g.Entry) {
			g.Reviewed, w.changed = true, true
		}
	}
}

// unreviewed counts the settled gaps of the last day that nobody has reviewed.
func (g *gaps) unreviewed(now time.Time) (n int) {
	for i := range g.Settled {
		if gap := &g.Settled[i]; !gap.Reviewed && now.Sub(gap.Ended) < gappedFor {
			n++
		}
	}
	return n
}

// entered takes the first gap due off the list, once the trail has it at an index.
func (g *gaps) entered(of Gap, index int64) {
	if len(g.Due) > 0 && g.Due[0].same(of) {
		g.Due = g.Due[1:]
	}
	for i := range g.Settled {
		if g.Settled[i].same(of) {
			g.Settled[i].Entry = index
		}
	}
}

// told lists the gaps with an end, the newest last; the relay's own downtime once it is
// settled, others once they have a loss.
func (g *gaps) told() []Gap {
	all := append([]Gap{}, g.Settled...)
	for _, p := range g.Past {
		if p.tellable() {
			all = append(all, p.Gap)
		}
	}
	return last(all, maxGaps)
}

func (p *pending) tellable() bool { return p.Cause != CauseRelayDown && p.EventsLost > 0 }

// waits reports whether the newest gap is not settled.
func (g *gaps) waits() bool { return slices.ContainsFunc(g.Past, (*pending).tellable) }

// unsettled lists the gaps with an end, and the open one.
func (g *gaps) unsettled() []*pending {
	all := append([]*pending{}, g.Past...)
	if g.Open != nil {
		all = append(all, g.Open)
	}
	return all
}

// follow opens, measures, ends and settles the gaps, by the verdict of this moment. fresh:
// the API was read lately.
func (w *watch) follow(v Verdict, fresh bool, now time.Time) {
	g := &w.gaps
	if v.State.loses() {
		w.lose(v, now)
		g.losing = now
	}
	if v.State.arrives() && g.Open != nil && w.mended(fresh) {
		w.end(w.mendedAt(now))
	}
	w.measure(now)
	if g.Open != nil || len(g.Past) == 0 {
		return
	}
	switch push := w.Arrivals.LastPush; {
	case g.settleAt.IsZero() && !push.IsZero() && !push.Before(g.Past[len(g.Past)-1].Ended):
		g.settleBy, g.late, w.changed = now.Add(settleMost*w.settle), 0, true
		g.await(now.Add(w.settle))
	case g.settleAt.IsZero():
	case !now.Before(g.settleAt):
		w.close()
	default:
		g.await(now.Add(w.settle))
	}
}

// settleMost bounds the wait for late events, in times of its beginning.
const settleMost = 15

// await waits for more late events if some have come: one in twenty of those expected.
func (g *gaps) await(until time.Time) {
	late, expected := int64(0), int64(0)
	for _, p := range g.Past {
		late, expected = late+p.EventsLate, expected+p.EventsExpected
	}
	if !g.settleAt.IsZero() && late <= g.late+expected/20 {
		return
	}
	if g.late, g.settleAt = late, until; until.After(g.settleBy) {
		g.settleAt = g.settleBy
	}
}

// mended reports whether the open gap is over: a push has come since, or the API shows the
// cause mended. The end of all evidence, as after a restart, is no end of a gap.
func (w *watch) mended(fresh bool) bool {
	g := w.Open
	push, after, arrival := w.Arrivals.LastPush, w.losing, g.ofArrivals()
	if arrival {
		push = w.Arrivals.LastNew
	}
	if !w.Arrivals.Looked.IsZero() { // at a foreign destination: it is found later
		after = g.Begun
	}
	return !push.IsZero() && !push.Before(after) || fresh && !arrival && !g.is(Refused)
}

// mendedAt is the push that has ended the open gap, or now.
func (w *watch) mendedAt(now time.Time) time.Time {
	push := w.Arrivals.LastPush
	if push.Before(w.losing) && w.Arrivals.Looked.IsZero() || !push.After(w.Open.Begun) {
		return now
	}
	return push
}

// lose opens a gap, or goes on with the open one.
func (w *watch) lose(v Verdict, now time.Time) {
	g := &w.gaps
	if g.Open == nil {
		if w.LastPush.IsZero() && v.State != Refused {
			return // nothing has come yet, so nothing is expected
		}
		w.openGap(v, now)
		return
	}
	if at, other := w.another(v, now); other && len(g.Past) < maxGaps {
		w.end(at)
		w.openGap(v, now)
		return
	}
	if !v.State.ofArrivals() && g.Open.ofArrivals() { // the cause shows
		g.Open.Cause, g.Open.Reason, g.Open.RefusedBy = string(v.State), v.Reason, v.refusedBy
	}
}

// another tells an incident that follows the open gap from its cause, or from doubts about it:
// and when the open one ended. A silence is often noticed before its cause; and a cause out of
// sight, as when the API is away, leaves a silence.
func (w *watch) another(v Verdict, now time.Time) (ended time.Time, is bool) {
	open := w.Open
	switch {
	case open.is(v.State) && open.RefusedBy == v.refusedBy:
		return now, false
	case v.State == Silent:
		return w.LastNew, open.is(Reduced)
	case v.State == Reduced:
		return w.LastPush, w.LastPush.After(open.Begun)
	case open.ofArrivals():
		late := open.noticed.Add(2 * w.Declared.Interval)
		return v.Since, !open.noticed.IsZero() && v.Since.After(late)
	case v.Since.After(open.Begun):
		return v.Since, true
	}
	return now, true
}

// openGap begins the gap of a verdict. The newest ended one goes on, where it had the same
// cause and ended a moment ago, or where there is no room for more: its end has proved
// nothing. It counts what came meanwhile.
func (w *watch) openGap(v Verdict, now time.Time) {
	g, n := &w.gaps, len(w.Past)
	g.settleAt, w.changed = time.Time{}, true
	if n > 0 {
		p := g.Past[n-1]
		if n >= maxGaps || p.is(v.State) && p.RefusedBy == v.refusedBy && now.Sub(p.Ended) < holdOther {
			p.late += w.Arrivals.Events - p.span.Events() - p.outside
			p.Ended = time.Time{}
			p.span.Set(p.Begun, time.Time{})
			g.Past, g.Open = g.Past[:n-1], p
			return
		}
	}
	w.begin(Gap{Cause: string(v.State), Reason: v.Reason, RefusedBy: v.refusedBy, Begun: w.begun(v)}, now)
	g.Open.late = v.came // before it was noticed
	if n == 0 {
		g.Came = v.came
	}
}

// begun is when the loss of a verdict began: at the first refusal, or after the last arrival;
// and not before the end of the gap before it.
func (w *watch) begun(v Verdict) time.Time {
	at := w.LastPush
	switch v.State {
	case Refused, Reduced:
		at = v.Since
	case Silent:
		at = w.LastNew
	}
	if n := len(w.Past); n > 0 && w.Past[n-1].Ended.After(at) {
		at = w.Past[n-1].Ended
	}
	return at
}

// begin opens a gap. The first one starts the count of all arrivals.
func (w *watch) begin(gap Gap, now time.Time) {
	g := &w.gaps
	if len(g.Past) == 0 {
		g.Came, g.cameAt = 0, w.Arrivals.Events
	}
	refused := w.refusedAtLastPush
	if n := len(g.Past); n > 0 { // without a push since, the refused ones of the gap before it are not of this one
		refused = max(refused, g.Past[n-1].refusedBefore+g.Past[n-1].RefusedPushes-g.Past[n-1].refused)
	}
	g.Open = &pending{Gap: gap, span: w.page.Count(gap.Begun, time.Time{}), refusedBefore: refused, noticed: now}
	g.settleAt, w.changed = time.Time{}, true
}

// end ends the open gap.
func (w *watch) end(at time.Time) {
	p := w.Open
	p.Ended = at
	p.span.Set(p.Begun, p.Ended)
	p.RefusedPushes = w.refusedIn(p)
	p.EventsExpected, p.EstimatedBy = w.expected(p.Begun, p.Ended)
	p.outside = w.Arrivals.Events - p.span.Events()
	w.Past, w.Open, w.changed = append(w.Past, p), nil, true
}

func (w *watch) refusedIn(p *pending) int64 { return p.refused + w.refusedPushes() - p.refusedBefore }

// measure estimates the events lost in each gap up to its end, or to now. The expected number
// is not looked up again after the end: the rhythm has learnt from the silence by then.
func (w *watch) measure(now time.Time) {
	all := w.unsettled()
	if len(all) == 0 {
		return
	}
	for _, p := range all {
		switch {
		case p.Ended.IsZero():
			p.RefusedPushes = w.refusedIn(p)
			p.EventsExpected, p.EstimatedBy = w.expected(p.Begun, now)
		case p.Cause == CauseRelayDown: // its beginning may have changed
			p.EventsExpected, p.EstimatedBy = w.expected(p.Begun, p.Ended)
		}
	}
	if !w.inStep(all, now) {
		w.byArrival(all, now)
		return
	}
	for _, p := range all {
		p.EventsLate = p.late + p.span.Events()
		p.estimate(noise(p.EventsExpected))
	}
}

// A sender's clock is in step for a gap if it is wrong by less than this, or by a tenth of the
// gap.
const inStep = 2 * time.Second

// inStep reports whether the sender's times tell which events are of the gaps. They do not where
// its clock is wrong, was wrong since the gaps began, or disagrees with that of another worker,
// or where events have no times. An event that was held up by the gaps is no older than they are.
func (w *watch) inStep(all []*pending, now time.Time) bool {
	c, shortest := &w.Arrivals.Clock, time.Duration(math.MaxInt64)
	for _, p := range all {
		if !p.Ended.IsZero() {
			shortest = min(shortest, p.Ended.Sub(p.Begun))
		}
	}
	if shortest == math.MaxInt64 { // none has an end: they are counted by an upper bound
		return true
	}
	most := max(inStep, shortest/10)
	return c.Samples > 0 && c.Least.Abs() <= most && c.Calm <= 2*most && c.Held <= now.Sub(all[0].Begun)+most
}

// byArrival estimates the gaps by what arrived since the first of them, whatever times the
// events have: what is missing from the usual number was lost. The events that came after all
// are those of the gaps whose events are sent again, and else of the oldest. All of that time
// adds to the doubt.
func (w *watch) byArrival(all []*pending, now time.Time) {
	usual, at, inGaps := int64(0), all[0].Begun, int64(0)
	for _, p := range all {
		between, _ := w.expected(at, p.Begun)
		usual, at, inGaps = usual+between+p.EventsExpected, p.Ended, inGaps+p.EventsExpected
	}
	if !at.IsZero() {
		since, _ := w.expected(at, now)
		usual += since
	}
	missing := usual - w.came()
	late := min(max(inGaps-missing, 0), inGaps)
	for _, again := range []bool{true, false} {
		for _, p := range all {
			if p.isSentAgain() == again {
				p.EventsLate = min(late, p.EventsExpected)
				late -= p.EventsLate
				p.estimate(noise(usual))
			}
		}
	}
}

// came counts the events that arrived since the first unsettled gap began.
func (w *watch) came() int64 { return w.Came + w.Arrivals.Events - w.cameAt }

// expected is the number of events usual in a time, and how it is known.
func (w *watch) expected(from, until time.Time) (events int64, by string) {
	n, by := w.Model.Expected(from, until), ByRhythm
	if n == 0 {
		n, by = w.Recent.perSecond()*max(0, until.Sub(from).Seconds()), ByRecentRate
	}
	if n == 0 {
		by = ""
	}
	return int64(math.Round(n)), by
}

// close settles the ended gaps. One without a loss is forgotten.
func (w *watch) close() {
	g := &w.gaps
	for _, p := range g.Past {
		p.span.Stop()
		if p.EventsLost > 0 {
			g.Settled = last(append(g.Settled, p.Gap), maxGaps)
			g.Due = last(append(g.Due, p.Gap), maxGaps)
			g.lost += p.EventsLost
		}
	}
	g.Past, g.settleAt, w.changed = nil, time.Time{}, true
}
