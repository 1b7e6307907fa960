package config

import (
	"encoding"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/config/secret"
)

// A decoder fills a Config from a YAML tree. It replaces the YAML library's for three reasons:
// it finds every error and not only the first, it knows each field's place, and it never shows
// a line of the source, which may contain secrets.
type decoder struct {
	kinds    Kinds // those of the program
	env      func(string) (string, bool)
	visited  int
	places   map[string]place
	errors   []Problem
	warnings []Problem

	secrets map[string]secretSource // those that were read from files, by their fields
	before  map[string]secretSource // what is taken of secrets in place of reading their files
	inline  bool                    // a secret is in the configuration itself
}

func newDecoder(env func(string) (string, bool)) *decoder {
	return &decoder{env: env, places: map[string]place{}, secrets: map[string]secretSource{}}
}

// A place is where a field is written. Unless the field is a secret or holds other fields, it
// has the text that is written there.
type place struct {
	line int
	text string
}

func (d *decoder) fail(line int, path, value, reason string) {
	d.errors = bounded(d.errors, Problem{Line: line, Field: path, Value: shown(value), Reason: reason})
}

func (d *decoder) warn(line int, path, reason string) {
	d.warnings = bounded(d.warnings, Problem{Line: line, Field: path, Reason: reason})
}

// full reports whether there are as many errors as are shown. Then no more of the document is
// examined.
func (d *decoder) full() bool { return len(d.errors) > maxProblems }

// value decodes one node into v, at path. A null leaves v as it is, as if the field were not
// there. A section may be given as a single word if its type reads texts.
func (d *decoder) value(node *yaml.Node, path string, v reflect.Value) {
	if d.full() {
		return
	}
	line := node.Line
	node, ok := d.resolve(node, path)
	if !ok || isNull(node) {
		return
	}
	single, isSecret := node.Kind == yaml.ScalarNode, v.Type() == reflect.TypeFor[secret.Text]()
	_, readsText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(node, path, v.Elem())
	case kind == reflect.Slice:
		d.sequence(node, line, path, v)
	case kind == reflect.Map:
		d.named(node, line, path, v)
	case kind == reflect.Struct && !isSecret && (!readsText || !single):
		d.section(node, line, path, v)
	case !single:
		d.fail(line, path, "", notSingle(node))
	case isSecret:
		d.secret(node.Value, line, path, v)
	default:
		d.scalar(node.Value, line, path, v)
	}
}

// members yields the names in a mapping, and their values, with the paths of these. It reports the
// names that stand there twice, and those that wrong gives a reason against.
func (d *decoder) members(node *yaml.Node, line int, path, form string, wrong func(name string, value *yaml.Node) string) iter.Seq2[string, entry] {
	return func(yield func(string, entry) bool) {
		if node.Kind != yaml.MappingNode {
			d.fail(line, path, "", "must hold "+form+" (NAME: VALUE), not "+kindOf(node))
			return
		}
		seen := map[string]bool{}
		for _, e := range entriesOf(node) {
			at, line, reason := join(path, printable(e.name, isNull(e.value))), e.key.Line, wrong(e.name, e.value)
			switch {
			case isMerge(e.key):
				d.fail(line, path, "", "merge keys (<<) are not supported; give a whole section an &anchor and repeat it with *anchor")
			case seen[e.name]:
				d.fail(line, at, "", "is given twice; remove one")
			case reason != "":
				d.fail(line, at, "", reason)
			default:
				seen[e.name] = true
				d.places[at] = place{line: line}
				yield(at, e) // which never ends the loop
			}
		}
	}
}

func (d *decoder) section(node *yaml.Node, line int, path string, v reflect.Value) {
	fields := d.fieldsOf(v.Type())
	unknown := func(name string, _ *yaml.Node) string {
		if _, known := fields[name]; known {
			return ""
		}
		return "unknown field" + suggest(name, fields)
	}
	for at, e := range d.members(node, line, path, "fields", unknown) {
		if i := fields[e.name]; i < v.NumField() {
			d.value(e.value, at, v.Field(i))
		} else {
			d.custom(e.value, at, v, d.kinds[i-v.NumField()])
		}
	}
}

// named decodes values whose names the user chooses.
func (d *decoder) named(node *yaml.Node, line int, path string, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	missing := func(_ string, value *yaml.Node) string {
		if isNull(value) {
			return "has no value; write one, or remove it"
		}
		return ""
	}
	for at, e := range d.members(node, line, path, "names with values", missing) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, at, value)
		v.SetMapIndex(reflect.ValueOf(e.name), value)
	}
}

func (d *decoder) sequence(node *yaml.Node, line int, path string, v reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		d.fail(line, path, "", "must be a list (one \"- \" an item), not "+kindOf(node))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.places[at] = place{line: item.Line}
		d.value(item, at, v.Index(i))
	}
}

// scalar sets v, at path, to the value of raw.
func (d *decoder) scalar(raw string, line int, path string, v reflect.Value) {
	d.places[path] = place{line: line, text: raw}
	text, err := expand(raw, d.env)
	if err == nil {
		err = setScalar(v, text)
	}
	if err != nil {
		d.fail(line, path, raw, err.Error())
	}
	if unbraced.MatchString(raw) {
		d.warn(line, path, "holds a $NAME without braces, and it stays as it is; write ${NAME} for an environment variable")
	}
}

func (d *decoder) secret(raw string, line int, path string, v reflect.Value) {
	s, known := d.before[path]
	if !known {
		var err error
		if s, err = readSecret(raw, d.env); err != nil {
			d.fail(line, path, "", err.Error())
			return
		}
	}
	if s.file != "" {
		d.secrets[path] = s
	}
	d.inline = d.inline || s.plain
	name, dollar := strings.CutPrefix(raw, "$")
	switch {
	case dollar && variableName.MatchString(name):
		d.warn(line, path, "looks like the name of an environment variable without its braces; write ${NAME}")
	// Whether an address is a credential, only its owner knows.
	case s.plain && !strings.HasPrefix(raw, "https://") && !strings.HasPrefix(raw, "http://"):
		d.warn(line, path, "the secret stands in the file; better write ${NAME} for an environment variable, or file:PATH")
	}
	v.Set(reflect.ValueOf(s.text))
}

// notSingle says that a node is not a single value, as it should be.
func notSingle(node *yaml.Node) string {
	if kind := kindOf(node); kind != "fields" {
		return "must be a single value, not " + kind
	}
	return `must be a single value, not fields; put a value that holds a ":" in quotes`
}

// setScalar sets v to the value of text.
func setScalar(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		t, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("not a duration: write a number with a unit, such as 500ms, 30s, 5m or 72h")
		}
		v.SetInt(int64(t))
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("not a switch: write true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 0)
		if err != nil {
			return errors.New("not a whole number, or too large")
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errors.New("not a number")
		}
		v.SetFloat(f)
	default: // a string; a test makes sure that the structs have no other kind
		v.SetString(text)
	}
	return nil
}

// fieldsOf returns the fields of a section: the names in YAML and their indices.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "-" {
			fields[name] = i
		}
	}
	return fields
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// printable returns as much of a name in the file as a problem may show: up to the first
// character that names do not have, since a value may begin there ("password …" without its
// colon). A name without a value may itself be a value (as after "password:,"), so it is shown
// only if it looks like one of ours.
func printable(name string, alone bool) string {
	if alone && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "…"
	}
	end := strings.IndexFunc(name, func(r rune) bool { return !isWord(r) })
	if end < 0 {
		end = len(name)
	}
	if end = min(end, 64); end < len(name) || end == 0 {
		return name[:end] + "…"
	}
	return name
}

// suggest names the field that name was probably meant to be, or lists them all.
func suggest(name string, fields map[string]int) string {
	names := make([]string, 0, len(fields))
	for f := range fields {
		names = append(names, f)
	}
	slices.SortFunc(names, func(a, b string) int { return fields[a] - fields[b] })
	for _, f := range names {
		if near(name, f) {
			return "; did you mean " + f + "?"
		}
	}
	list := "; the fields here are "
	for i, f := range names {
		if i > 0 {
			list += ", "
		}
		list += f
	}
	return list
}

// near reports whether a and b are within an edit distance of 2.
func near(a, b string) bool {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return false
	}
	row := make([]int, len(b)+1) // the distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)] <= 2
}
