package meaning

import (
	"maps"
	"reflect"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

var projectShape = texts("project_slug", "name", "vertical", "created_at")

func explainProject(c *collector, before, after any) {
	for _, member := range []struct{ name, label, rule string }{
		{"project_slug", "project's slug", "project.identity_changed"},
		{"vertical", "project's vertical", "project.identity_changed"},
		{"created_at", "project's creation time", "project.identity_changed"},
		{"name", "project's name", "project.renamed"},
	} {
		c.field(member.rule, member.label, "/"+member.name, memberOf(before, member.name), memberOf(after, member.name))
	}
}

// field tells of a changed value, under a rule.
func (c *collector) field(rule, label, path string, old, now any) {
	if reflect.DeepEqual(old, now) {
		return
	}
	c.add(rule, Statement{Sentence: label + ": " + quoteValue(old) + " → " + quoteValue(now), Path: path, Old: raw(old), New: raw(now)})
}

// anyMember is the shape of an object whose members are all understood.
func anyMember(v any) *shape {
	members, _ := v.(map[string]any)
	return texts(slices.Collect(maps.Keys(members))...)
}

// explainDefaults compares the default template of each type.
func explainDefaults(c *collector, before, after any) {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	for _, name := range sortedUnion(a, b) {
		old, now := a[name], b[name]
		label, path := "default template of type "+quote(name), "/"+jsontext.Escape(name)
		if now == nil && old != nil {
			c.add("email.default_changed", Statement{
				Sentence: "no " + label + " any more, it was " + quoteValue(old), Path: path, Old: raw(old), New: raw(now),
			})
			continue
		}
		c.field("email.default_changed", label, path, old, now)
	}
}

var projectRules = []Rule{
	{"project.renamed", Neutral, Info, "A project has another name.", "A name permits nothing."},
	{"project.identity_changed", Unknown, Medium, "A project's slug, vertical or creation time changed.", "These do not change in normal use; the project may have been replaced."},
}

var defaultRules = []Rule{
	{"email.default_changed", Neutral, Low, "Another template is the default of its type, or none is.", "Users get another mail; templates are watched themselves."},
}
