package relay

import "strings"

// Template builds the name of a topic or a subject from an event's attributes: it is a parsed
// text such as "events.{project}.{environment}.{type}". It is immutable and may be shared.
type Template struct {
	text  string
	parts []templatePart
}

// templatePart is literal text, or the value of an attribute if field is not noField.
type templatePart struct {
	literal string
	field   templateField
}

type templateField uint8

const (
	noField templateField = iota
	fieldType
	fieldProject
	fieldEnvironment
)

// ParseTemplate reads text. Only {type}, {project} and {environment} are names; any other brace stands
// for itself, and the configuration refuses such a text.
func ParseTemplate(text string) *Template {
	t := &Template{text: text}
	for rest := text; rest != ""; {
		before, name, f := cutField(rest)
		t.literal(before)
		if f != noField {
			t.parts = append(t.parts, templatePart{field: f})
		}
		rest = rest[len(before)+len(name):]
	}
	return t
}

// cutField finds the first {NAME} in text, and returns the text before it, the name with its
// braces, and its field. If there is none, before is all of text.
func cutField(text string) (before, name string, f templateField) {
	for at := range len(text) {
		if text[at] != '{' {
			continue
		}
		if end := strings.IndexByte(text[at:], '}'); end > 0 {
			name = text[at : at+end+1]
			if f, ok := fieldNamed(name[1 : len(name)-1]); ok {
				return text[:at], name, f
			}
		}
	}
	return text, "", noField
}

func (t *Template) literal(s string) {
	if s != "" {
		t.parts = append(t.parts, templatePart{literal: s})
	}
}

func fieldNamed(name string) (templateField, bool) {
	switch name {
	case "type":
		return fieldType, true
	case "project":
		return fieldProject, true
	case "environment":
		return fieldEnvironment, true
	}
	return noField, false
}

// NoValue replaces, in a name, an attribute that is missing, such as the environment of a whole
// project's event.
const NoValue = "_"

// AppendName appends the name of a topic, a subject or a tenant for e. It is like Append, but
// uses [NoValue] for each attribute that e lacks: "auth.{environment}" becomes "auth._", since
// "auth." is not a valid name. Labels and tags may have empty values, and use Append.
func (t *Template) AppendName(dst []byte, e *Event, escape func(dst []byte, value string) []byte) []byte {
	for i := range t.parts {
		p := &t.parts[i]
		if p.field != noField && p.field.of(e) == "" {
			dst = append(dst, NoValue...)
			continue
		}
		dst = p.append(dst, e, escape)
	}
	return dst
}

// Append appends the text for e to dst. escape appends a value in the destination's form; it
// gets only the values, never the literal text. If it is nil, they are appended as they are. A
// missing attribute has the empty value. Append allocates only if dst grows.
func (t *Template) Append(dst []byte, e *Event, escape func(dst []byte, value string) []byte) []byte {
	for i := range t.parts {
		dst = t.parts[i].append(dst, e, escape)
	}
	return dst
}

func (p *templatePart) append(dst []byte, e *Event, escape func(dst []byte, value string) []byte) []byte {
	switch {
	case p.field == noField:
		return append(dst, p.literal...)
	case escape == nil:
		return append(dst, p.field.of(e)...)
	default:
		return escape(dst, p.field.of(e))
	}
}

func (f templateField) of(e *Event) string {
	switch f {
	case fieldType:
		return e.Type
	case fieldProject:
		return e.Project
	case fieldEnvironment:
		return e.Environment
	default:
		return ""
	}
}

// Text returns the template's source.
func (t *Template) Text() string { return t.text }

// Constant reports whether the template is the same for every event; it is then equal to its
// Text.
func (t *Template) Constant() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].field == noField
}

// Map returns the template's text with each name replaced by value: the pattern of all its
// results, such as the subjects "events.*.*" for "events.{project}.{type}".
func (t *Template) Map(value string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == noField {
			b.WriteString(p.literal)
		} else {
			b.WriteString(value)
		}
	}
	return b.String()
}
