package meaning

import (
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// subject is how the states of one subject are read. One without a row here is compared value by
// value, and whatever changes in it has the rule "setting.changed".
type subject struct {
	// shape is the form understood by explain, by "Resources and their fields" of the API's
	// document; the rest is compared value by value. It may depend on the state.
	shape func(v any) *shape
	// schema marks the lists whose order does not count: those of the shape.
	schema *jsontext.Schema
	// explain adds statements for two states. They may have any form.
	explain func(c *collector, before, after any)
	// rules are those of explain's statements.
	rules []Rule
	// optional: no state is a state like others, and not an unseen one.
	optional bool
}

// streaming is the reading of a config of the event log. Without one, the event log goes nowhere.
var streaming = subject{shape: streamingShape, explain: explainStreaming, rules: streamingRules, optional: true}

// subjects are those with rules, as they stand in the trail.
var subjects = withSchemas(map[string]subject{
	kinds.Project.Name:               {shape: fixed(projectShape), explain: explainProject, rules: projectRules},
	kinds.EmailTemplates.Name:        {shape: fixed(templatesShape), explain: explainTemplates, rules: templateRules},
	kinds.DefaultEmailTemplates.Name: {shape: anyMember, explain: explainDefaults, rules: defaultRules},
	kinds.RBACPolicy.Name:            {shape: rbacShape, explain: explainRBAC, rules: rbacRules},
	kinds.TrustedTokenProfiles.Name:  {shape: fixed(profilesShape), explain: explainProfiles, rules: profileRules},
	kinds.PasswordStrength.Name:      {shape: fixed(passwordShape), explain: explainPassword, rules: passwordRules},
	kinds.SMSCountryCodes.Name:       {shape: fixed(list(text)), explain: explainCountries, rules: countryRules},
	"event_log_streaming":            streaming,
	"event_log_streaming_second":     streaming,
	// Everything in it is explained.
	RelayConfiguration: {shape: fixed(anything), explain: explainRelay, rules: relayRules},
})

func withSchemas(all map[string]subject) map[string]subject {
	for name, s := range all {
		s.schema = s.shape(nil)
		all[name] = s
	}
	return all
}

func fixed(s *shape) func(any) *shape { return func(any) *shape { return s } }

// Rule gives a kind of statement its direction and severity. Each subject has its own, in its file.
type Rule struct {
	ID        string
	Direction Direction
	Severity  Severity
	// Means says what happened, and Reason justifies the severity.
	Means, Reason string
}

// rules are those of all subjects, by id.
var rules = func() map[string]Rule {
	all := map[string]Rule{}
	add := func(some []Rule) {
		for _, r := range some {
			all[r.ID] = r
		}
	}
	add(settingRules)
	add(actionRules)
	for _, s := range subjects {
		add(s.rules)
	}
	return all
}()

// settingRules are for a setting as a whole, and for what no other rule knows.
var settingRules = []Rule{
	{"setting.changed", Unknown, Medium, "A value changed that no rule knows.", "A person has to judge it."},
	{"setting.rewritten", Neutral, Info, "A setting is written differently and means the same.", "It permits the same."},
	{"setting.first_seen", Neutral, Info, "A setting is seen for the first time.", "Nothing is known to have changed."},
	{"setting.back", Unknown, Medium, "A setting is there that was not there before.", "It may permit more than it did before it went."},
	{"setting.returned", Neutral, Info, "A setting is there again.", "What differs from the state before it went is told by statements of its own."},
	{"setting.gone", Unknown, High, "A setting is gone, for example with its environment.", "The environment may be gone, or hidden from the relay."},
}

// shape is the part of a state known to the rules. The zero value is any value.
type shape = jsontext.Schema

var (
	anything = &shape{}
	text     = &shape{Text: true}
)

func object(members map[string]*shape) *shape { return &shape{Members: members} }

func texts(names ...string) *shape {
	s := object(map[string]*shape{})
	for _, name := range names {
		s.Members[name] = anything
	}
	return s
}

// list is a list whose order does not count.
func list(elem *shape) *shape { return &shape{Set: true, Elem: elem} }

func listBy(key string, elem *shape) *shape { return &shape{Key: key, Elem: elem} }

// strip returns the rest of a state without the known part. An object or array stays as
// an empty one.
func strip(s *shape, v any) any {
	rest, left := restOf(s, v)
	if left {
		return rest
	}
	switch v.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return nil
}

func restOf(s *shape, v any) (rest any, left bool) {
	switch x := v.(type) {
	case map[string]any:
		if s.Members != nil || s.Suffixes != nil {
			return restOfObject(s, x)
		}
	case []any:
		if s.Elem != nil {
			return restOfList(s, x)
		}
	case nil:
		return nil, false
	case string:
		if s.Text {
			return nil, false
		}
	}
	return v, s.Text || s.Members != nil || s.Suffixes != nil || s.Elem != nil
}

func restOfObject(s *shape, x map[string]any) (any, bool) {
	out := map[string]any{}
	for name, member := range x {
		inner := s.Member(name)
		if inner == nil {
			out[name] = member
		} else if rest, left := restOf(inner, member); left {
			out[name] = rest
		}
	}
	return out, len(out) > 0
}

// restOfList keeps the name of an element together with its rest.
func restOfList(s *shape, x []any) (any, bool) {
	var out []any
	for _, element := range x {
		object, _ := element.(map[string]any)
		name, named := object[s.Key].(string)
		if s.Key != "" && !named {
			out = append(out, element)
			continue
		}
		rest, left := restOf(s.Elem, element)
		if !left {
			continue
		}
		if kept, ok := rest.(map[string]any); ok && s.Key != "" {
			kept[s.Key] = name
		}
		out = append(out, rest)
	}
	return out, len(out) > 0
}
