package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
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

// Diff lists the fields that differ, in the order of [Config]; what was added to a list comes after
// what was in it. Both configurations must have their defaults. Secrets are compared, and not shown.
func Diff(before, after *Config) []Change {
	d := &differ{}
	d.value("", reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem())
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(path string, before, after any) {
	rule := RuleOf(path)
	d.changes = append(d.changes, Change{Field: path, Old: before, New: after, Rule: rule.Rule, Reason: rule.Reason})
}

func (d *differ) value(path string, before, after reflect.Value) {
	if reflect.DeepEqual(before.Interface(), after.Interface()) {
		return
	}
	switch kind := before.Kind(); {
	case before.Type() == reflect.TypeFor[secret.Text]():
	case before.Type() == reflect.TypeFor[*Custom]() && !before.IsNil() && !after.IsNil():
		d.custom(path, before.Interface().(*Custom), after.Interface().(*Custom))
		return
	case kind == reflect.Pointer && before.Type().Elem().Kind() == reflect.Struct && !before.IsNil() && !after.IsNil():
		d.value(path, before.Elem(), after.Elem())
		return
	case kind == reflect.Struct:
		d.fields(path, before, after)
		return
	case kind == reflect.Slice && named(before.Type().Elem()):
		d.list(path, before, after)
		return
	}
	name := path[1+strings.LastIndexByte(path, '.'):]
	d.add(path, shownAs(name, before), shownAs(name, after))
}

// shownAs is the outline of a field. A section that is there, and has no field of its own, is not
// shown as one that is missing.
func shownAs(name string, v reflect.Value) any {
	outline := outlineOf(name, v)
	if outline == nil && v.Kind() == reflect.Pointer && !v.IsNil() {
		return map[string]any{}
	}
	return outline
}

func (d *differ) fields(path string, before, after reflect.Value) {
	for i := range before.NumField() {
		field := before.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		at := join(path, field.Tag.Get("yaml"))
		if field.Tag.Get("yaml") == "-" {
			at = path
		}
		d.value(at, before.Field(i), after.Field(i))
	}
}

// custom compares sections of a program's own kinds.
func (d *differ) custom(path string, before, after *Custom) {
	a, b := reflect.ValueOf(before.Section), reflect.ValueOf(after.Section)
	if before.Kind == after.Kind && a.Type() == b.Type() {
		d.value(join(path, before.Kind), a, b)
		return
	}
	d.add(path, outlineOf(before.Kind, a), outlineOf(after.Kind, b))
}

// list compares lists whose elements have names.
func (d *differ) list(path string, before, after reflect.Value) {
	have := map[string]reflect.Value{}
	for i := range after.Len() {
		have[nameOf(after.Index(i))] = after.Index(i)
	}
	was := map[string]bool{}
	for i := range before.Len() {
		name, one := nameOf(before.Index(i)), before.Index(i)
		was[name] = true
		if other, kept := have[name]; kept {
			d.value(path+"["+name+"]", one, other)
		} else {
			d.add(path+"["+name+"]", outlineOf("", one), nil)
		}
	}
	for i := range after.Len() {
		if name := nameOf(after.Index(i)); !was[name] {
			d.add(path+"["+name+"]", nil, outlineOf("", after.Index(i)))
		}
	}
}

// named reports whether the elements of a list are known by names.
func named(element reflect.Type) bool {
	return slices.Contains([]reflect.Type{reflect.TypeFor[Sink](), reflect.TypeFor[Environment](), reflect.TypeFor[Witness]()}, element)
}

func nameOf(v reflect.Value) string {
	switch one := v.Interface().(type) {
	case Sink:
		return one.Name
	case Environment:
		return one.Project + "/" + one.Environment
	case Witness:
		return cmp.Or(one.Key, one.URL)
	}
	return ""
}
