package relay

import (
	"regexp"
	"strings"
)

// Template builds the name of a topic or a subject from an event's attributes: it is a parsed
// text such as "events.{project}.{environment}.{type}". It is immutable and may be shared.
type Template struct {
	text  string
	parts []templatePart
}

// templatePart is literal text, or the value of an attribute.
type templatePart struct {
	literal string
	value   func(*Event) string // nil for literal text
}

var (
	templateName   = regexp.MustCompile(`\{(type|project|environment)\}`)
	templateValues = map[string]func(*Event) string{
		"{type}":        func(e *Event) string { return e.Type },
		"{project}":     func(e *Event) string { return e.Project },
		"{environment}": func(e *Event) string { return e.Environment },
	}
)

// ParseTemplate reads text. Only {type}, {project} and {environment} are names; any other brace stands
// for itself, and the configuration refuses such a text.
func ParseTemplate(text string) *Template {
	t := &Template{text: text}
	end := 0
	for _, at := range templateName.FindAllStringIndex(text, -1) {
		t.literal(text[end:at[0]])
		t.parts = append(t.parts, templatePart{value: templateValues[text[at[0]:at[1]]]})
		end = at[1]
	}
	t.literal(text[end:])
	return t
}

func (t *Template) literal(s string) {
	if s != "" {
		t.parts = append(t.parts, templatePart{literal: s})
	}
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
		if p.value != nil && p.value(e) == "" {
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
	case p.value == nil:
		return append(dst, p.literal...)
	case escape == nil:
		return append(dst, p.value(e)...)
	default:
		return escape(dst, p.value(e))
	}
}

// Text returns the template's source.
func (t *Template) Text() string { return t.text }

// Constant reports whether the template is the same for every event; it is then equal to its
// Text.
func (t *Template) Constant() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].value == nil
}

// Map returns the template's text with each name replaced by value: the pattern of all its
// results, such as the subjects "events.*.*" for "events.{project}.{type}".
func (t *Template) Map(value string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.value == nil {
			b.WriteString(p.literal)
		} else {
			b.WriteString(value)
		}
	}
	return b.String()
}
