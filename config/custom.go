package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Kind is a Go program's own kind of sink, in addition to the built-in ones. In YAML a sink of
// the kind has a section of the kind's name, as "kafka" is for Kafka.
type Kind struct {
	// Name has lower-case letters, digits and "_".
	Name string
	// New makes an empty section: a pointer to a struct, whose exported fields are
	// decoded as strictly as those of this package. Each has a tag such as
	// `yaml:"url"`, and is a string, bool, int, float64, time.Duration, [Size],
	// [secret.Text] or encoding.TextUnmarshaler, or a struct, pointer, slice or map by
	// string of these. Keys, passwords and tokens are a secret.Text; a file to read is
	// a string whose name ends in _file.
	New func() Section
}

// Section is the configuration of a sink of a [Kind]. If it has warnings, it is also a
// [Warner], and if its destination has only one writer, it is [Exclusive].
type Section interface {
	// SetDefaults fills in empty fields. A second call changes nothing.
	SetDefaults()
	// Problems returns all errors, after SetDefaults. A Problem's Field begins at the section,
	// such as "url" or "brokers[0]"; Value is shown, unless it is empty or a secret; the line
	// is found by the field.
	Problems() []Problem
}

// Warner is a [Section] with warnings about weaknesses that do not prevent a start. `config
// check` shows them, and `run` logs them.
type Warner interface {
	// Warnings returns all warnings of a section without Problems, after SetDefaults. Their
	// fields are like those of Problems. No Value is shown.
	Warnings() []Problem
}

// Custom is the section of a sink of a [Kind].
type Custom struct {
	Kind    string
	Section Section
}

// Kinds are the kinds of a Go program, in addition to the built-in ones. Its methods load a
// configuration in which these kinds are known too; with nil, only the built-in ones are.
type Kinds []Kind

func (c *Custom) setDefaults(*Sink) { c.Section.SetDefaults() }

// check asks the section itself. It shows no warnings of a faulty section, since they could
// mislead.
func (c *Custom) check(k *checker, at string, _ *Sink) {
	problems := c.Section.Problems()
	c.tell(problems, at, k.fail)
	if weak, ok := c.Section.(Warner); ok && len(problems) == 0 {
		c.tell(weak.Warnings(), at, func(path string, _ any, reason string) { k.warn(path, reason) })
	}
}

// tell passes on the problems of the section at the path, without its secrets.
func (c *Custom) tell(problems []Problem, at string, to func(path string, value any, reason string)) {
	hide := hiding(reflect.ValueOf(c.Section))
	for _, p := range problems {
		path := at
		if p.Field != "" {
			path = join(at, p.Field)
		}
		var value any
		if p.Value != "" {
			value = hide.Replace(p.Value)
		}
		to(path, value, hide.Replace(p.Reason))
	}
}

// hiding replaces the secrets in v.
func hiding(v reflect.Value) *strings.Replacer {
	var texts []string
	walk(v, "", "", func(v reflect.Value, _ string, _ reflect.StructTag) bool {
		if v.Type() == reflect.TypeFor[secret.Text]() {
			texts = append(texts, v.Interface().(secret.Text).Reveal())
		}
		return true
	})
	return secret.Hide(1, texts...)
}

// fieldsOf returns the fields of a section as the function fieldsOf does; those of a sink are
// followed by the kinds of the program.
func (d *decoder) fieldsOf(t reflect.Type) map[string]int {
	fields := fieldsOf(t)
	if t == reflect.TypeFor[Sink]() {
		for i, kind := range d.kinds {
			fields[kind.Name] = t.NumField() + i
		}
	}
	return fields
}

// custom decodes the section of a kind into the sink v.
func (d *decoder) custom(node *yaml.Node, at string, v reflect.Value, kind Kind) {
	if isNull(node) {
		return
	}
	s := v.Addr().Interface().(*Sink)
	if s.Custom != nil {
		d.fail(node.Line, at, "", "is a second destination; make a sink of each")
		return
	}
	s.Custom = &Custom{Kind: kind.Name, Section: kind.New()}
	d.value(node, at, reflect.ValueOf(s.Custom.Section).Elem())
}

// check refuses faulty kinds, which are mistakes of the program.
func (k Kinds) check() error {
	for i, kind := range k {
		if err := kind.check(); err != nil {
			return fmt.Errorf("kind of sink %q: %w", kind.Name, err)
		}
		if slices.ContainsFunc(k[:i], func(other Kind) bool { return other.Name == kind.Name }) {
			return fmt.Errorf("kind of sink %q: it is given twice", kind.Name)
		}
	}
	return nil
}

func (k Kind) check() error {
	plain := func(r rune) bool { return isWord(r) && r != '-' && (r < 'A' || r > 'Z') }
	if k.Name == "" || !all(k.Name, plain) {
		return errors.New(`its name must have lower-case letters, digits and "_"`)
	}
	if _, taken := fieldsOf(reflect.TypeFor[Sink]())[k.Name]; taken {
		return errors.New("a sink has a field of that name already")
	}
	section := reflect.ValueOf(k.New())
	if section.Kind() != reflect.Pointer || section.IsNil() || section.Elem().Kind() != reflect.Struct {
		return errors.New("its New must return a pointer to a struct")
	}
	return decodable(section.Type().Elem(), "")
}

// decodable returns an error for types that the decoder cannot fill in.
func decodable(t reflect.Type, at string) error {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return nil
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return decodable(t.Elem(), at)
	case t.Kind() == reflect.Struct:
		return decodableFields(t, at)
	case slices.Contains([]reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Float64}, t.Kind()):
		return nil
	case t == reflect.TypeFor[time.Duration]():
		return nil
	}
	return fmt.Errorf("%s has the type %v, and cannot be decoded; see config.Kind", at, t)
}

func decodableFields(t reflect.Type, at string) error {
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name == "-" || name == "" || !field.IsExported() {
			return fmt.Errorf("%s must be exported, and have a tag such as `yaml:\"url\"`", join(at, field.Name))
		}
		if err := decodable(field.Type, join(at, name)); err != nil {
			return err
		}
	}
	return nil
}
