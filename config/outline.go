package config

import (
	"cmp"
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
	outline, _ := partOf("", reflect.ValueOf(c).Elem(), true).shown.(map[string]any) // always is one
	return outline
}

// part is a part of a configuration: a field, or an element of a list whose elements have names.
type part struct {
	name  string
	label string // the name as it may be shown, of an element
	value any
	shown any    // in an outline; nil if it is empty
	parts []part // of a section, its fields, and of such a list, its elements
	list  bool
}

// partOf is the part with a name and a value. A zero, or a section without fields, is empty unless it
// was written down, as what a field points at was.
func partOf(name string, v reflect.Value, written bool) part {
	p := part{name: name, value: v.Interface()}
	switch value := p.value.(type) {
	case secret.Text:
		if !value.Empty() {
			p.shown = secret.Redacted
		}
	case time.Duration, Size:
		if !v.IsZero() || written {
			p.shown = fmt.Sprint(value)
		}
	case *Custom:
		if value != nil {
			return partOf(value.Kind, reflect.ValueOf(value.Section), false)
		}
	default:
		p.fill(v, written)
	}
	return p
}

func (p *part) fill(v reflect.Value, written bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			inner := partOf(p.name, v.Elem(), true)
			p.parts, p.shown = inner.parts, inner.shown
		}
	case reflect.Struct:
		p.fields(v, written)
	case reflect.Slice:
		p.elements(v)
	case reflect.Map:
		members := map[string]any{}
		for _, key := range v.MapKeys() {
			members[key.String()] = partOf(key.String(), v.MapIndex(key), false).shown
		}
		if !v.IsNil() {
			p.shown = members
		}
	case reflect.String:
		if text := v.String(); text != "" || written {
			p.shown = shownIn(p.name, text)
		}
	default:
		if !v.IsZero() || written {
			p.shown = v.Interface()
		}
	}
}

func (p *part) fields(v reflect.Value, written bool) {
	members := map[string]any{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name := field.Tag.Get("yaml")
		if name == "" || name == "-" {
			name = strings.ToLower(field.Name)
		}
		one := partOf(name, v.Field(i), false)
		if p.parts = append(p.parts, one); one.shown != nil {
			members[one.name] = one.shown
		}
	}
	if len(members) > 0 || written {
		p.shown = members
	}
}

func (p *part) elements(v reflect.Value) {
	_, p.list = nameOf(reflect.Zero(v.Type().Elem()).Interface())
	if v.IsNil() {
		return
	}
	all, named := make([]any, v.Len()), map[string]any{}
	for i := range all {
		one := partOf(p.name, v.Index(i), false)
		if all[i] = one.shown; p.list {
			names, _ := nameOf(one.value)
			one.name = strings.Join(names, "/")
			for i := range names { // a secret in one of them may look harmless next to another one
				names[i] = shownIn("", names[i])
			}
			one.label = shownIn("", strings.Join(names, "/"))
			named[one.label], p.parts = one.shown, append(p.parts, one)
		}
	}
	switch {
	case p.list:
		p.shown = named
	case p.name == "sign_command" && len(all) > 0: // an argument may be a PIN
		p.shown = []any{all[0], fmt.Sprintf("and %d arguments, not shown", len(all)-1)}
	default:
		p.shown = all
	}
}

// nameOf is the name of an element of a list, in its parts, and whether the elements of such lists have
// names. A valid configuration has each name once.
func nameOf(element any) (names []string, named bool) {
	switch one := element.(type) {
	case Sink:
		return []string{one.Name}, true
	case Environment:
		return []string{one.Project, one.Environment}, true
	case Witness:
		return []string{cmp.Or(one.Key, one.URL)}, true
	}
	return nil, false
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

// What secrets look like, wherever they are.
var (
	variable   = regexp.MustCompile(`\$\{[A-Za-z0-9_]*\}`)
	longRun    = regexp.MustCompile(`[A-Za-z0-9_+=]{16,}`) // as in keys and tokens
	uuid       = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	pair       = regexp.MustCompile(`^[^:/{]+:[^/]{8,}$`) // NAME:PASSWORD, but not HOST:PORT
	secretWord = regexp.MustCompile(`password|secret|api_key|token`)
)

// shown returns as much of a value as a problem may show: not much, and nothing that may be a
// secret in the wrong field.
func shown(value string) string {
	if looksSecret(variable.ReplaceAllString(value, "")) {
		return ""
	}
	const most = 100
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "…"
	}
	return value
}

// looksSecret errs on the safe side. The line and the field still lead to a value that is
// hidden.
func looksSecret(value string) bool {
	return strings.Contains(value, "@") || pair.MatchString(value) || secretWord.MatchString(value) || holdsKey(value)
}

// holdsKey reports whether a key or a token is in value.
func holdsKey(value string) bool {
	if uuid.MatchString(value) {
		return true
	}
	for _, run := range longRun.FindAllString(value, -1) {
		digits := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, run)
		if len(digits) > 1 && len(digits) < len(run) || len(run) >= 32 {
			return true
		}
	}
	return false
}
