package config

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Outline returns the configuration in a form that may be shown to anybody: plain JSON values,
// by the names of the YAML form, without what is empty. Secrets are left out: each
// [secret.Text] is replaced by [secret.Redacted], and so is whatever else may be one, such as
// the user info and query of an address, and the arguments of a program. So nothing that is
// computed from an outline depends on a secret.
//
// Environments, sinks and witnesses are listed by their names, so that a difference between two
// outlines names them.
func (c *Config) Outline() map[string]any {
	outline, _ := outlineOf("", reflect.ValueOf(c)).(map[string]any)
	if outline == nil {
		outline = map[string]any{}
	}
	named := func(in map[string]any, list string, name func(map[string]any) string) {
		if all, ok := in[list].([]any); ok {
			in[list] = byName(all, name)
		}
	}
	named(outline, "environments", func(e map[string]any) string { return fmt.Sprint(e["project"], "/", e["environment"]) })
	named(outline, "sinks", func(s map[string]any) string { return fmt.Sprint(s["name"]) })
	if audit, ok := outline["audit"].(map[string]any); ok {
		named(audit, "witnesses", func(w map[string]any) string { return fmt.Sprint(w["key"]) })
		if command, ok := audit["sign_command"].([]any); ok { // an argument may be a PIN
			audit["sign_command"] = []any{command[0], fmt.Sprintf("and %d arguments, not shown", len(command)-1)}
		}
	}
	return outline
}

// byName turns a list into an object. A valid configuration has each name once.
func byName(list []any, name func(map[string]any) string) map[string]any {
	all := map[string]any{}
	for _, one := range list {
		members, _ := one.(map[string]any)
		all[name(members)] = one
	}
	return all
}

// outlineOf returns the value of a field; nil if it is empty.
func outlineOf(field string, v reflect.Value) any {
	if !v.IsValid() || v.IsZero() {
		return nil
	}
	switch value := v.Interface().(type) {
	case secret.Text:
		return secret.Redacted
	case time.Duration:
		return value.String()
	case Size:
		return value.String()
	case *Custom:
		return outlineOf(field, reflect.ValueOf(value.Section))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if inner := v.Elem(); inner.Kind() != reflect.Struct && inner.IsZero() {
			return outlineOfZero(inner) // a zero that was written down means something
		}
		return outlineOf(field, v.Elem())
	case reflect.Struct:
		return outlineOfStruct(v)
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = outlineOf(field, v.Index(i))
		}
		return list
	case reflect.Map:
		members := map[string]any{}
		for _, key := range v.MapKeys() {
			members[key.String()] = outlineOf(key.String(), v.MapIndex(key))
		}
		return members
	case reflect.String:
		return shownIn(field, v.String())
	}
	return v.Interface()
}

func outlineOfZero(v reflect.Value) any {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	return v.Interface()
}

func outlineOfStruct(v reflect.Value) any {
	members := map[string]any{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name := field.Tag.Get("yaml")
		if custom, ok := v.Field(i).Interface().(*Custom); ok && custom != nil {
			name = custom.Kind
		}
		if name == "" || name == "-" {
			name = strings.ToLower(field.Name)
		}
		if value := outlineOf(name, v.Field(i)); value != nil {
			members[name] = value
		}
	}
	return members
}

var (
	// publicKey is the public key of a witness or a trail, NAME+HASH+KEY.
	publicKey = regexp.MustCompile(`^[^+@\s]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+=*$`)
	// dottedRun may be a host name, or a token with several parts.
	dottedRun = regexp.MustCompile(`[A-Za-z0-9_+=.~-]{16,}`)
	// assigned is a secret with its name, as in a query.
	assigned = regexp.MustCompile(`(?i)(password|secret|api_key|token)\s*[=:]`)
)

// shownIn returns a text without what may be secret in it.
func shownIn(field, text string) string {
	if publicKey.MatchString(text) {
		return text
	}
	if secretWord.MatchString(field) {
		return secret.Redacted
	}
	if strings.Contains(text, "://") {
		text = plainAddresses(text)
	}
	if field != "cel" && (strings.Contains(text, "@") || pair.MatchString(text) || assigned.MatchString(text)) {
		return secret.Redacted
	}
	text = uuid.ReplaceAllString(text, secret.Redacted)
	return dottedRun.ReplaceAllStringFunc(text, func(run string) string {
		if holdsKey(run) {
			return secret.Redacted
		}
		return run
	})
}

// plainAddresses removes the user info, the query and the fragment from addresses. Commas
// separate several, as those of a cluster.
func plainAddresses(text string) string {
	all := strings.Split(text, ",")
	for i, address := range all {
		u, err := url.Parse(strings.TrimSpace(address))
		switch {
		case err != nil:
			all[i] = secret.Redacted
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			all[i] = u.String() + " " + secret.Redacted
		}
	}
	return strings.Join(all, ",")
}
