package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The default of a field and its limits are in its tags, next to the comment that explains them:
//
//	default:"30s"         what an empty field is set to
//	check:"1KiB..1GiB"    from one value to another
//	check:"positive"      a duration that is not negative
//	check:"text|json"     one of these words
//	check:"required"      a text or a secret that is not empty
//
// What depends on other fields is written out, in SetDefaults and in the checker.

// fillIn sets the empty fields of the section at v to the defaults in their tags.
func fillIn(v any) {
	walk(reflect.ValueOf(v), "", "", func(field reflect.Value, at string, tag reflect.StructTag) bool {
		text, given := tag.Lookup("default")
		if !given || !field.IsZero() {
			return builtIn(field)
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		if err := setScalar(field, text); err != nil { // a mistake in this package
			panic(fmt.Sprintf("config: the default of %s: %v", at, err))
		}
		return false
	})
}

// tagged checks the fields of the section at v by their tags, and its certificates.
func (k *checker) tagged(v any, at string) {
	walk(reflect.ValueOf(v), at, "", func(field reflect.Value, at string, tag reflect.StructTag) bool {
		if field.Type() == reflect.TypeFor[TLSClient]() {
			k.tlsClient(at, field.Interface().(TLSClient))
		}
		if _, given := tag.Lookup("default"); given && field.Kind() == reflect.String && field.IsZero() {
			return false // an environment that a program added after SetDefaults
		}
		if rule, given := tag.Lookup("check"); given && (field.Kind() != reflect.Pointer || !field.IsNil()) {
			k.rule(at, reflect.Indirect(field), rule)
		}
		return builtIn(field)
	})
}

func (k *checker) rule(at string, field reflect.Value, rule string) {
	low, high, isRange := strings.Cut(rule, "..")
	switch {
	case field.Type() == reflect.TypeFor[secret.Text]():
		k.secret(at, field.Interface().(secret.Text))
	case rule == "required":
		k.required(at, field.String())
	case rule == "positive":
		k.failIf(field.Int() < 0, at, field.Interface(), "must be positive")
	case isRange:
		k.within(at, field, valueOf(field.Type(), low), valueOf(field.Type(), high))
	default:
		k.oneOf(at, field.String(), strings.Split(rule, "|")...)
	}
}

func (k *checker) within(at string, field, low, high reflect.Value) {
	inside := false // NaN is refused too
	if field.CanFloat() {
		inside = field.Float() >= low.Float() && field.Float() <= high.Float()
	} else {
		inside = field.Int() >= low.Int() && field.Int() <= high.Int()
	}
	if !inside {
		k.fail(at, field.Interface(), fmt.Sprintf("must be between %v and %v", low, high))
	}
}

// valueOf reads the text of a tag.
func valueOf(t reflect.Type, text string) reflect.Value {
	v := reflect.New(t).Elem()
	if err := setScalar(v, text); err != nil { // a mistake in this package
		panic(fmt.Sprintf("config: the limit %q: %v", text, err))
	}
	return v
}

// setDefault fills in an empty field.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaults sets every empty field to its default. [Parse] calls it; a Go program that makes
// a Config itself calls it before Validate.
func (c *Config) SetDefaults() {
	if c.Journal.URL == "" {
		setDefault(&c.Journal.Replicas, 1)
	}
	setDefault(&c.Journal.Replicas, 3)
	setDefault(&c.Audit.Origin, "auditrelay.local/"+hostname())
	c.Audit.setDefaults(c.DataDir)
	setDefault(&c.Audit.Quorum, len(c.Audit.Witnesses))
	if o := c.Console.OIDC; o != nil && o.Scopes == nil {
		o.Scopes = []string{"profile", "email"}
	}
	for i := range c.Sinks {
		c.Sinks[i].setDefaults()
	}
	fillIn(c)
}

// hostname returns as much of the host's name as the origin of a trail may contain.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '+' {
			return '-'
		}
		return r
	}, name)
}

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
