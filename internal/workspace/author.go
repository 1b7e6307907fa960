package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// effect is what an operation can change in a readable resource.
type effect struct {
	operation string
	// covers reports whether the action may have changed a top-level member of the state.
	covers func(a *action, member string) bool
	// fits reports whether the state is as the action left it, in what it covers. answer is
	// the resource in the API's answer to it, empty where there is none.
	fits func(a *action, answer, state json.RawMessage) bool
}

// effects are those of the operations, by the subjects of the changed resources. The other
// operations change nothing readable.
var effects = map[string]effect{
	"project":                    {"project.rename", func(_ *action, member string) bool { return member == "name" }, renamed},
	"default_email_templates":    {"templates.default.unset", func(a *action, member string) bool { return member == a.Arguments["type"] }, unset},
	"event_log_streaming":        {streamingSet, func(*action, string) bool { return true }, streams},
	"event_log_streaming_second": {streamingSet, func(*action, string) bool { return true }, streams},
}

func renamed(a *action, answer, state json.RawMessage) bool {
	// The API may write the name in its own way, and then its answer has it so.
	name := func(of json.RawMessage) string {
		var p struct{ Name string }
		_ = json.Unmarshal(of, &p) // another form has no name
		return p.Name
	}
	return name(state) == a.Arguments["name"] || len(answer) > 0 && name(state) == name(answer)
}

func unset(a *action, _, state json.RawMessage) bool {
	shown := member(state, a.Arguments["type"])
	return shown == none || shown == "null"
}

func streams(a *action, answer, state json.RawMessage) bool {
	shown, _ := management.StreamingOf(state) // one of another form has no destination
	answered, _ := management.StreamingOf(answer)
	asked := destination(a.Arguments)
	asked.LastFour = a.LastFour
	if fits := goesTo(shown.Shape, asked); fits || answered.Shape == nil {
		return fits
	}
	answered.LastFour = a.LastFour
	return goesTo(shown.Shape, *answered.Shape)
}

func goesTo(s *management.Shape, other management.Shape) bool {
	return s != nil && s.Type == other.Type && strings.EqualFold(strings.TrimSuffix(s.Hostname, "."), strings.TrimSuffix(other.Hostname, ".")) &&
		s.Username == other.Username && strings.EqualFold(s.Site, other.Site) &&
		(s.LastFour == "" || other.LastFour == "" || s.LastFour == other.LastFour)
}

// Found is a change that a look found, as its entry.
type Found struct {
	*audit.Entry // with Before, After and Window
	// Changes are the differences between Before and After.
	Changes jsontext.Changes
	// Since is when the entry before it was made, Looked when the look began.
	Since, Looked time.Time
}

// Attribute says who made a change. It goes back through the actions on the changed resource
// that may have been under way within the window. A refused one changed nothing, and one of
// unknown outcome may have. An action that left another value than the one found does not
// explain it; and where it took effect, neither does an earlier one. Where several actions
// have each made a part of the change, all are named. In one window, an action and a change
// from outside to the very same value look the same.
func Attribute(ctx context.Context, trail audit.Log, f Found) (Attribution, error) {
	effect, ok := effects[f.Subject]
	if !ok {
		return Outside(), nil
	}
	s := search{Found: f, effect: effect, open: changedMembers(f.Changes)}
	err := Actions(ctx, trail, f, SubjectOf(effect.operation), func(e audit.Entry, settled bool) bool {
		var a action
		_ = json.Unmarshal(e.Detail, &a) // it has an id
		s.decide(&a, e.After, settled)
		return len(s.open) > 0
	})
	if err != nil {
		return Attribution{}, fmt.Errorf("find who made a change: %w", err)
	}
	return s.attribution(), nil
}

// search goes back through the actions on a resource.
type search struct {
	Found
	effect effect
	open   []string  // the changed members that no action has decided yet
	by     []*action // those that explain a part, the newest first
	others bool      // a part was changed by others
}

// changedMembers are the top-level members that differ.
func changedMembers(changes jsontext.Changes) (names []string) {
	for _, c := range changes.List {
		name, _, _ := strings.Cut(strings.TrimPrefix(c.Path, "/"), "/")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if changes.More > 0 {
		names = append(names, "/") // no action covers it
	}
	return names
}

// notShown is how long the API may go on to show the state before an action.
const notShown = underWay

// Actions goes back through those with entries of a subject that may have caused a change, until
// visit returns false. Each is given by its newest entry. It is settled if it took effect before the
// look.
func Actions(ctx context.Context, trail audit.Log, f Found, subject string, visit func(e audit.Entry, settled bool) bool) error {
	seen := map[string]bool{} // by id: the end of an action comes before its intent
	return audit.Backwards(ctx, trail, f.Project, f.Environment, subject, func(e audit.Entry) bool {
		var a struct {
			Action  string    `json:"action"`
			Begun   time.Time `json:"begun"`
			Outcome string    `json:"outcome"`
		}
		if json.Unmarshal(e.Detail, &a) != nil || a.Action == "" || seen[a.Action] {
			return true
		}
		seen[a.Action] = true
		// An action lasts from Begun until its end is recorded. The end of an intent is open. If the
		// entry of the previous state is older than the action, its effect had not been seen yet.
		if a.Outcome != "" && e.Time.Before(f.Window.After) && (!f.Since.Before(a.Begun) || f.Window.After.Sub(e.Time) > notShown) {
			return false // the look at the start of the window saw its effect, and those of all before it
		}
		if a.Outcome == OutcomeRefused || a.Begun.After(f.Window.Until) {
			return true
		}
		return visit(e, a.Outcome == OutcomeDone && !e.Time.After(f.Looked))
	})
}

// decide takes the members explained by an action from the open ones. A settled action took
// effect before the look.
func (s *search) decide(a *action, answer json.RawMessage, settled bool) {
	fits, explains := s.effect.fits(a, answer, s.After), false
	s.open = slices.DeleteFunc(s.open, func(member string) bool {
		if !s.effect.covers(a, member) || !fits && !settled {
			return false
		}
		explains, s.others = explains || fits, s.others || !fits
		return true
	})
	if explains {
		s.by = append(s.by, a)
	}
}

func (s *search) attribution() Attribution {
	var actions, persons []string
	for _, a := range slices.Backward(s.by) {
		actions = append(actions, a.Action)
		if person := a.Person.String(); !slices.Contains(persons, person) {
			persons = append(persons, person)
		}
	}
	by := ByPerson(strings.Join(actions, ", "), strings.Join(persons, ", "))
	switch outside := Outside(); {
	case len(s.by) == 0:
		return outside
	case len(s.open) > 0 || s.others:
		outside.ActorReason += fmt.Sprintf(", and action %s of %s explains a part of this one only", by.Action, by.Actor)
		return outside
	}
	return by
}

// The causes of a change.
const (
	// CauseRelay: this relay made the change.
	CauseRelay = "relay"
	// CauseOutside: the relay found the change. Somebody else made it.
	CauseOutside = "outside"
)

// Attribution says who made a change. It is part of an entry's Detail.
type Attribution struct {
	// Cause is [CauseRelay] or [CauseOutside]; empty where nothing changed.
	Cause string `json:"cause,omitempty"`
	// Action is the id of the relay's action that made the change, if it is known.
	Action string `json:"action,omitempty"`
	// Actor is the person or program that made the change: "relay", USER@HOST of a person's
	// action, or "unknown".
	Actor string `json:"actor,omitempty"`
	// ActorReason says why the actor is unknown.
	ActorReason string `json:"actor_reason,omitempty"`
}

// Outside attributes a change found by a look.
func Outside() Attribution {
	return Attribution{Cause: CauseOutside, Actor: "unknown", ActorReason: "the API names no actor of a change"}
}

// ByRelay attributes a change to an action of this relay.
func ByRelay(action string) Attribution {
	return Attribution{Cause: CauseRelay, Action: action, Actor: "relay"}
}

// ByPerson attributes a change to a person's action through this relay.
func ByPerson(action, person string) Attribution {
	return Attribution{Cause: CauseRelay, Action: action, Actor: person}
}

// Requests are the request ids of the two reads around a change.
type Requests struct {
	// Before are those of the last look with the entry's Before. It is empty if the look is
	// unknown.
	Before []string `json:"before,omitempty"`
	// After are those of the first look with the entry's After.
	After []string `json:"after,omitempty"`
}
