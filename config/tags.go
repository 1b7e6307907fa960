package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

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
		k.positive(at, time.Duration(field.Int()))
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
