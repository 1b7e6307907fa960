package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// choice is what goes to the sink of the events that were given to Deliver.
type choice struct {
	events   []relay.Event   // a part of those given, or copies
	index    []int           // of each of events among those given; nil where these are all, unchanged
	withheld []relay.Failure // cannot be redacted

	unmatched int // were left out
	doubtful  int // were chosen because nobody could tell
}

// errTime keeps bodies that are slow to look at from holding up a delivery for
// longer than it may take, which would be tried again for ever.
var errTime = errors.New("half of the delivery's time was spent on choosing its events")

// choose fails only where ctx has ended. Nothing is allocated as long as every
// event goes on as it is, or none does.
func (r *Route) choose(ctx context.Context, events []relay.Event) (choice, error) {
	var c choice
	var v *view
	if r.when != nil {
		v = r.views.Get().(*view) //nolint:errcheck // the pool holds nothing else
		defer r.views.Put(v)
	}
	latest := half(ctx)
	whole := true // all up to here, unchanged
	for i := range events {
		if err := ctx.Err(); err != nil {
			return choice{}, err
		}
		e := &events[i]
		keep := r.keeps(e, v, latest, &c)
		body, changed := e.Body, false
		if keep && r.redact != nil {
			var err error
			if body, changed, err = r.redact.Apply(e.Body); err != nil {
				keep = false
				c.withheld = append(c.withheld, relay.Failure{Index: i, Err: cannot(err)})
			}
		}
		if whole && keep && !changed {
			continue
		}
		if whole {
			whole = false
			c.start(events[:i])
		}
		if keep {
			c.events, c.index = append(c.events, *e), append(c.index, i)
			c.events[len(c.events)-1].Body = body
		}
	}
	if whole {
		c.events = events
	}
	return c, nil
}

// start copies the events before the first that does not go on as it is.
func (c *choice) start(events []relay.Event) {
	c.index = make([]int, 0, len(events)) // not nil
	for i := range events {
		c.events, c.index = append(c.events, events[i]), append(c.index, i)
	}
}

func cannot(err error) error {
	return relay.Permanent(fmt.Errorf("its body cannot be redacted, and so is withheld: %w", err))
}

// half is when half of the time that ctx leaves is over; zero where it has no end.
func half(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(end.Sub(now) / 2)
}

// keeps reports whether e is chosen. What cannot be told counts as chosen: a
// mistake in an expression must not lose events.
func (r *Route) keeps(e *relay.Event, v *view, latest time.Time, c *choice) bool {
	if !r.named(e) {
		c.unmatched++
		return false
	}
	if r.when == nil {
		return true
	}
	var keep bool
	err := errTime
	if latest.IsZero() || time.Now().Before(latest) {
		v.reset(e)
		keep, err = r.when.Holds(v)
		v.reset(nil)
	}
	if err != nil {
		c.doubtful++
		r.doubts.tell(e, err)
		return true
	}
	if !keep {
		c.unmatched++
	}
	return keep
}
