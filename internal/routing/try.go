package routing

import (
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/relay"
)

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
