package routing

import (
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

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
