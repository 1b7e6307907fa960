package config

import (
	"reflect"
	"strings"
)

// Rule says how a changed field takes effect.
type Rule string

// The rules.
const (
	// Live fields are applied by a reload.
	Live Rule = "live"
	// Restart fields take effect at the next start; a reload that finds one changed is refused.
	Restart Rule = "restart"
)

// FieldRule is the rule of a field, and of all fields below it that have no rule of their own.
type FieldRule struct {
	// Field is its path in the YAML form, without the places in lists, such as "sinks.kafka".
	Field string `json:"field"`
	Rule  Rule   `json:"rule"`
	// Reason says, for people, why a restart is needed, or what a reload does.
	Reason string `json:"reason"`
}

// Rules returns the rule of every field, in the order of [Config]. A field that is not listed has
// the rule of the nearest section around it.
func Rules() []FieldRule {
	return []FieldRule{
		{"data_dir", Restart, "the relay has the folder's lock, and its files open"},
		{"workspace", Live, "what asks the workspace starts again"},
		{"environments", Live, "credentials and quotas change at once; what asks the workspace and judges the environments starts again"},
		{"ingest", Restart, "the listener and its limits are made at the start; the files of a certificate are followed"},
		{"journal", Restart, "the journal is opened at the start"},
		{"streaming", Live, "what asks the workspace starts again"},
		{"settings", Live, "what asks the workspace starts again"},
		{"policies", Live, "the settings are held against the new rules at once"},
		{"audit", Restart, "the trail, with its key and its witnesses, is opened at the start; the files of their TLS are followed"},
		{"audit.serve.token", Live, "readers of the trail have to show the new one at once"},
		{"admin.token", Live, "the private pages ask for the new one at once"},
		{"admin", Restart, "the listener is made at the start; the files of a certificate are followed"},
		{"console.oidc.client_secret", Live, "the next login is made with the new one"},
		{"console", Restart, "the listener and the ways to log in are made at the start; the files of certificates are followed"},
		{"heartbeat", Live, "the calls go on with the new address and interval"},
		{"traces.headers", Live, "they are sent with the next traces"},
		{"traces", Restart, "the exporter is made at the start; the files of its TLS are followed"},
		{"log", Restart, "the format is chosen at the start"},
		{"log.level", Live, "it changes at once"},
		{"shutdown_timeout", Live, "it counts at the next stop"},
		{"sinks", Live, "each sink that changed is opened again, and goes on from its position"},
	}
}

// unknownField is the reason of a field that Rules does not name, which a test forbids.
const unknownField = "it is not known to a reload"

// RuleOf returns the rule of a field, by its path with or without the places in lists.
func RuleOf(field string) FieldRule {
	path := unplaced(field)
	best := FieldRule{Field: path, Rule: Restart, Reason: unknownField}
	longest := -1
	for _, r := range Rules() {
		if (path == r.Field || strings.HasPrefix(path, r.Field+".")) && len(r.Field) > longest {
			best, longest = r, len(r.Field)
		}
	}
	return best
}

// unplaced removes the places in lists from a path: "sinks[a].name" is "sinks.name".
func unplaced(path string) string {
	var b strings.Builder
	for depth, rest := 0, path; rest != ""; rest = rest[1:] {
		switch {
		case rest[0] == '[':
			depth++
		case rest[0] == ']':
			depth--
		case depth == 0:
			b.WriteByte(rest[0])
		}
	}
	return b.String()
}

// Change is a field that differs between two configurations.
type Change struct {
	// Field is its path. Sinks, environments and witnesses stand in their lists by their names, as
	// in "sinks[loki-eu].timeout" or "environments[shop/live].quota.events_per_second".
	Field string `json:"field"`
	// Old and New are plain JSON values, as in [Config.Outline]: nil is empty, and secrets are
	// [secret.Redacted], so that both may look the same.
	Old any `json:"old"`
	New any `json:"new"`
	// Rule says whether a reload applies the change, and Reason why not, or how.
	Rule   Rule   `json:"rule"`
	Reason string `json:"reason"`
}

// WholeSink reports whether a sink is added or removed, and nothing in one changed.
func (c *Change) WholeSink() bool {
	name, found := strings.CutPrefix(c.Field, "sinks[")
	return found && strings.IndexByte(name, ']') == len(name)-1
}

// Diff lists the fields that differ, in the order of [Config]; what was added to a list comes after
// what was in it. Both configurations must have their defaults. Secrets are compared, and not shown.
func Diff(before, after *Config) []Change {
	d := &differ{}
	d.compare("", partOf("", reflect.ValueOf(before).Elem(), true), partOf("", reflect.ValueOf(after).Elem(), true))
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(path string, before, after any) {
	rule := RuleOf(path)
	d.changes = append(d.changes, Change{Field: path, Old: before, New: after, Rule: rule.Rule, Reason: rule.Reason})
}

func (d *differ) compare(path string, before, after part) {
	switch {
	case reflect.DeepEqual(before.value, after.value):
		return
	case !before.list && (before.parts == nil || after.parts == nil):
		d.add(path, before.shown, after.shown)
		return
	}
	was, is := before.byName(), after.byName()
	for _, one := range before.parts {
		if other, kept := is[one.name]; kept {
			d.compare(before.at(path, one), one, other)
		} else if one.shown != nil {
			d.add(before.at(path, one), one.shown, nil)
		}
	}
	for _, one := range after.parts {
		if _, known := was[one.name]; !known && one.shown != nil {
			d.add(after.at(path, one), nil, one.shown)
		}
	}
}

func (p *part) byName() map[string]part {
	all := map[string]part{}
	for _, one := range p.parts {
		all[one.name] = one
	}
	return all
}

// at is the path of what is in a part at a path.
func (p *part) at(path string, inner part) string {
	if p.list {
		return path + "[" + inner.label + "]"
	}
	return join(path, inner.name)
}
