package routing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// choice is what becomes of Deliver's events.
type choice struct {
	events   []relay.Event   // those for the sink: a part of those given, or copies
	index    []int           // of each of events among those given; nil if events are all of these, unchanged
	withheld []relay.Failure // those that may not go to the sink, or not yet

	unmatched int // how many were left out
	doubtful  int // for how many the expression failed
}

// errTime keeps slow bodies from holding up a delivery for longer than its time, since it would
// then be tried again for ever.
var errTime = errors.New("half of the delivery's time was spent on choosing its events")

// chooser examines the events of one delivery.
type chooser struct {
	*Route
	choice

	view   *view     // nil without an expression
	latest time.Time // when no more expressions are evaluated; zero for never

	given, kept []relay.Label // the newest labels, and what remains of them
}

// choose fails only if ctx has ended. It allocates nothing as long as every event goes on as it
// is, or none does.
func (r *Route) choose(ctx context.Context, events []relay.Event) (choice, error) {
	c := chooser{Route: r, latest: half(ctx)}
	if r.when != nil {
		c.view = r.views.Get().(*view) //nolint:errcheck // the pool holds nothing else
		defer r.views.Put(c.view)
	}
	whole := true // all events so far go on unchanged
	for i := range events {
		if err := ctx.Err(); err != nil {
			return choice{}, err
		}
		out, changed, err := c.pass(&events[i])
		if err != nil && !errors.Is(err, errUnmatched) {
			c.withheld = append(c.withheld, relay.Failure{Index: i, Err: err})
		}
		if whole && err == nil && !changed {
			continue
		}
		if whole {
			whole = false
			c.start(events[:i])
		}
		if err == nil {
			c.events, c.index = append(c.events, out), append(c.index, i)
		}
	}
	if whole {
		c.events = events
	}
	return c.choice, nil
}

// start copies the events before the first one that changed.
func (c *choice) start(events []relay.Event) {
	c.index = make([]int, 0, len(events)) // not nil
	for i := range events {
		c.events, c.index = append(c.events, events[i]), append(c.index, i)
	}
}

// errUnmatched means that the event is not chosen.
var errUnmatched = errors.New("it is not chosen")

// pass returns the event for the sink, or the reason why there is none.
func (c *chooser) pass(e *relay.Event) (out relay.Event, changed bool, err error) {
	out = *e
	if err := c.chosen(e); err != nil {
		return out, false, err
	}
	if c.redact != nil {
		if changed, err = c.redacted(&out); err != nil {
			return out, false, err
		}
	}
	if c.ocsf {
		return asOCSF(out), true, nil
	}
	return out, changed, nil
}

// asOCSF takes a copy of the event, so that without this form no event is moved to the heap.
func asOCSF(e relay.Event) relay.Event {
	e.Body, e.ContentType = encodeOCSF(&e), "application/json"
	return e
}

// redacted redacts a copy of an event.
func (c *chooser) redacted(out *relay.Event) (changed bool, err error) {
	if out.Body, changed, err = c.redact.apply(out.Body); err != nil {
		return false, relay.Permanent(fmt.Errorf("its body cannot be redacted, and so is withheld: %w", err))
	}
	given := out.Labels
	if out.Labels = c.labels(given); len(out.Labels) != len(given) || len(given) > 0 && &out.Labels[0] != &given[0] {
		changed = true
	}
	if out.OfTrail() && (changed || bytes.Contains(out.Body, []byte(`"omitted"`))) {
		unsalted, _, err := c.unsalt.apply(out.Body)
		if err != nil {
			return false, relay.Permanent(fmt.Errorf("its body cannot be redacted, and so is withheld: %w", err))
		}
		out.Body, changed = unsalted, true
	}
	return changed, nil
}

// labels returns what remains of an event's labels. Those of one stream are mostly the same
// slice.
func (c *chooser) labels(labels []relay.Label) []relay.Label {
	if len(labels) == 0 {
		return labels
	}
	if len(c.given) != len(labels) || &c.given[0] != &labels[0] {
		c.given, c.kept = labels, c.redact.keepLabels(labels)
	}
	return c.kept
}

// half returns the middle of ctx's remaining time; zero if it has no end.
func half(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(end.Sub(now) / 2)
}

// chosen returns nil for an event to pass on, errUnmatched for one to leave out, and another
// error for one to withhold. Unless the configuration says otherwise, an event counts as chosen
// if its expression fails, because a mistake in an expression must not lose events.
func (c *chooser) chosen(e *relay.Event) error {
	if !c.named(e) {
		c.unmatched++
		return errUnmatched
	}
	if c.when == nil {
		return nil
	}
	keep, err := c.holds(e)
	switch {
	case errors.Is(err, errTime) && c.strict:
		return err // there is time at the next attempt
	case err != nil && c.strict:
		c.doubtful++
		return relay.Permanent(fmt.Errorf("match.cel fails for it, and so it is withheld: %w", err))
	case err != nil:
		c.doubtful++
		c.doubts.Do(func() {
			c.log.Warn("match.cel failed for an event, and it is delivered; further failures are counted, and not logged for a while",
				"event", e.ID, "type", e.Type, "error", err)
		})
		return nil //nolint:nilerr // on_error is deliver
	case !keep:
		c.unmatched++
		return errUnmatched
	}
	return nil
}

func (c *chooser) holds(e *relay.Event) (bool, error) {
	if !c.latest.IsZero() && !time.Now().Before(c.latest) {
		return false, errTime
	}
	c.view.reset(e)
	defer c.view.reset(nil)
	return c.when.Holds(c.view)
}

// view shows an expression its event. It belongs to one delivery at a time.
type view struct {
	event   *relay.Event
	body    any // decoded, on demand
	decoded bool
}

func (v *view) reset(e *relay.Event) { *v = view{event: e} }

// Parent implements [match.Variables].
func (v *view) Parent() match.Variables { return nil }

// ResolveName implements [match.Variables].
func (v *view) ResolveName(name string) (any, bool) {
	e := v.event
	switch name {
	case "id":
		return e.ID, true
	case "source":
		return e.Source, true
	case "type":
		return e.Type, true
	case "subject":
		return e.Subject, true
	case "project":
		return e.Project, true
	case "environment":
		return e.Environment, true
	case "time":
		return e.Time, true
	case "received":
		return e.Received, true
	case "labels":
		return labels(e), true
	case "body":
		return v.json(), true
	case "raw":
		return string(e.Body), true
	}
	return nil, false
}

func (v *view) json() any {
	if !v.decoded {
		v.body, v.decoded = match.Decode(v.event.Body), true
	}
	return v.body
}

// labels returns all values of each name, in their order.
func labels(e *relay.Event) map[string]any {
	all := make(map[string]any, len(e.Labels))
	for _, l := range e.Labels {
		values, _ := all[l.Name].([]string)
		all[l.Name] = append(values, l.Value)
	}
	return all
}
