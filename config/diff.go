package config

import (
	"reflect"
	"strings"
)

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
	d.compare("", partOf("", reflect.ValueOf(before).Elem()), partOf("", reflect.ValueOf(after).Elem()))
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
