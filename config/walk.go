package config

import (
	"fmt"
	"reflect"

	"github.com/auditrelay/auditrelay/config/secret"
)

// visit is called for a value in a configuration with its path, such as "sinks[1].kafka.brokers". The
// tag is that of a section's field, and empty for other values. It reports whether to go on with
// what is in the value.
type visit func(v reflect.Value, at string, tag reflect.StructTag) (inside bool)

// walk visits v, which is at a path, and everything in it; a secret has no parts. All that looks for
// certain fields of a configuration walks through it: defaults, checks, files, certificates, secrets.
func walk(v reflect.Value, at string, tag reflect.StructTag, visit visit) {
	if !visit(v, at, tag) {
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[secret.Text]():
	case v.Type() == reflect.TypeFor[Custom]():
		custom := v.Interface().(Custom)
		walk(reflect.ValueOf(custom.Section), join(at, custom.Kind), "", visit)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		walk(v.Elem(), at, "", visit)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", at, i), "", visit)
		}
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			walk(v.MapIndex(key), join(at, key.String()), "", visit)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			field, path := v.Type().Field(i), at
			if name := field.Tag.Get("yaml"); name != "-" {
				path = join(at, name)
			}
			walk(v.Field(i), path, field.Tag, visit)
		}
	}
}

// builtIn reports whether a value is not a section of a Go program's own kind, which has no tags for
// defaults and checks.
func builtIn(v reflect.Value) bool { return v.Type() != reflect.TypeFor[Custom]() }
