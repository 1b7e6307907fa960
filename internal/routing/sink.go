package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/relay"
)

// Sink is a sink that a [Route] wraps. Several deliveries may run at once if the wrapped sink
// allows it.
type Sink struct {
	route *Route
	inner relay.Sink
	sends atomic.Uint64 // deliveries of which the inner sink acknowledged something chosen
}

// Sends implements [relay.Selective].
func (s *Sink) Sends() uint64 { return 1 + s.sends.Load() }

// Deliver implements [relay.Sink]. It acknowledges the events that are left out. An event that
// cannot be redacted with certainty is refused for good, because withholding it is better than
// giving away its secrets.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	chosen, err := s.route.choose(ctx, events)
	if err != nil {
		return err
	}
	if s.route.order && slices.ContainsFunc(chosen.withheld, refused) {
		s.route.counts.add(chosen)
		return chosen.postpone()
	}
	if len(chosen.events) > 0 {
		if err = s.inner.Deliver(ctx, chosen.events); err == nil {
			s.sends.Add(1)
		}
	}
	err, settled := chosen.settle(err)
	if settled { // otherwise they are counted at the next attempt
		s.route.counts.add(chosen)
	}
	return err
}

func refused(f relay.Failure) bool { return relay.IsPermanent(f.Err) }

// postpone has the withheld events settled before those for the sink are tried. A crash between
// the two delivers all of them again.
func (c *choice) postpone() error {
	failures := slices.Clone(c.withheld)
	for _, i := range c.index {
		failures = append(failures, relay.Failure{Index: i, Err: relay.ErrUntried})
	}
	slices.SortFunc(failures, func(a, b relay.Failure) int { return a.Index - b.Index })
	return &relay.PartialError{Failures: failures}
}

// Close implements [relay.Sink].
func (s *Sink) Close() error { return s.inner.Close() }

// Check implements [relay.Checker]. It reports the route, and then checks the sink if
// it has a check.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	if s.route.when != nil {
		report("match.cel", "compiles: "+s.route.when.String())
	}
	if s.route.redact != nil {
		report("redact", "an event whose body is no JSON object goes to the dead letters")
	}
	if s.route.ocsf {
		report("format", "OCSF "+ocsfVersion)
	}
	checker, ok := s.inner.(relay.Checker)
	if !ok {
		return nil
	}
	return checker.Check(ctx, report)
}

// settle translates the sink's error, which is about the chosen events, to the indexes of all
// events. settled is false if the delivery is tried again as a whole, or in halves.
func (c *choice) settle(err error) (_ error, settled bool) {
	partial := partialOf(err)
	switch {
	case err == nil && len(c.withheld) == 0:
		return nil, true
	case err == nil:
		return &relay.PartialError{Failures: c.withheld}, true
	case c.index == nil: // all were chosen, unchanged
		return err, partial != nil
	case partial != nil:
		return c.translate(partial)
	case relay.IsPermanent(err) && len(c.events) == 1:
		return c.translate(&relay.PartialError{Failures: []relay.Failure{{Index: 0, Err: err}}})
	}
	return err, false
}

func partialOf(err error) *relay.PartialError {
	if err == nil {
		return nil // without allocating
	}
	var partial *relay.PartialError
	_ = errors.As(err, &partial)
	return partial
}

func (c *choice) translate(partial *relay.PartialError) (_ error, settled bool) {
	failures, last := slices.Clone(c.withheld), -1
	for _, f := range partial.Failures {
		if f.Index <= last || f.Index >= len(c.index) || f.Err == nil {
			// Nothing that it says about an event can be believed.
			return fmt.Errorf("the sink names events outside of the delivery, or not in order: %v", partial), false //nolint:errorlint // its class is hidden on purpose
		}
		last = f.Index
		failures = append(failures, relay.Failure{Index: c.index[f.Index], Err: f.Err})
	}
	if last < 0 {
		return fmt.Errorf("the sink failed in part without naming the events: %v", partial), false //nolint:errorlint // as above
	}
	slices.SortFunc(failures, func(a, b relay.Failure) int { return a.Index - b.Index })
	return &relay.PartialError{Failures: failures}, true
}

// Trial is what a route does with one event.
type Trial struct {
	// Event is the event for the sink. It has no meaning unless Delivered is set.
	Event relay.Event
	// Delivered is set if the event goes to the sink, Withheld if it goes to the dead letters.
	// If neither is, the sink's match leaves it out.
	Delivered, Withheld bool
	// Changed is set if redaction or the format made another event of it.
	Changed bool
	// Reason says why it is not delivered, or why it is although an expression failed;
	// otherwise it is empty.
	Reason string
}

// Try chooses, redacts and re-forms one event as a delivery does. It counts and logs nothing if
// the route has no metrics and its logger discards.
func (r *Route) Try(e relay.Event) Trial {
	c := chooser{Route: r}
	if r.when != nil {
		c.view = &view{}
	}
	out, changed, err := c.pass(&e)
	t := Trial{Event: out, Delivered: err == nil, Changed: changed}
	switch {
	case errors.Is(err, errUnmatched):
		t.Reason = r.whyNot(&e)
	case err != nil:
		t.Withheld, t.Reason = true, err.Error()
	case c.doubtful > 0:
		_, why := c.holds(&e)
		t.Reason = fmt.Sprintf("match.cel fails for it, and match.on_error delivers it all the same: %v", why)
	}
	return t
}

// whyNot names the part of match that leaves the event out.
func (r *Route) whyNot(e *relay.Event) string {
	switch {
	case !fits(r.types, e.Type):
		return fmt.Sprintf("match.types has nothing for %q", e.Type)
	case !fits(r.projects, e.Project):
		return fmt.Sprintf("match.projects has nothing for %q", e.Project)
	case !fits(r.environments, e.Environment):
		return fmt.Sprintf("match.environments has nothing for %q", e.Environment)
	}
	return fmt.Sprintf("match.cel is false: %s", r.when)
}
