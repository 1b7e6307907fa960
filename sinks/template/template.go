// Package template builds a topic or a subject from an event's attributes:
// texts such as "events.{project}.{environment}.{type}".
package template

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/relay"
)

// Template is a parsed text. It is immutable and may be shared.
type Template struct {
	text  string
	parts []part
}

// part is literal text, or the value of an attribute where field is not none.
type part struct {
	literal string
	field   field
}

type field uint8

const (
	none field = iota
	fieldType
	fieldProject
	fieldEnvironment
)

// allowed is what a wrong text is told.
const allowed = "only {type}, {project} and {environment} are allowed"

// Parse reads text. A brace only ever belongs to one of the names {type},
// {project} and {environment}; an unknown name or an unbalanced brace is an
// error that says its column, counted in characters from 1.
func Parse(text string) (*Template, error) {
	t := &Template{text: text}
	for at := 0; at < len(text); {
		brace := strings.IndexAny(text[at:], "{}")
		if brace < 0 {
			t.literal(text[at:])
			break
		}
		t.literal(text[at : at+brace])
		at += brace
		f, size, err := parseField(text[at:])
		if err != nil {
			return nil, fmt.Errorf("template %q, column %d: %w", text, utf8.RuneCountInString(text[:at])+1, err)
		}
		t.parts = append(t.parts, part{field: f})
		at += size
	}
	return t, nil
}

func (t *Template) literal(s string) {
	if s != "" {
		t.parts = append(t.parts, part{literal: s})
	}
}

// parseField reads the field that s starts with, a brace, and its length.
func parseField(s string) (field, int, error) {
	if s[0] == '}' {
		return none, 0, fmt.Errorf("a } without a { before it: %s", allowed)
	}
	end := strings.IndexAny(s[1:], "{}")
	if end < 0 || s[1+end] == '{' {
		return none, 0, fmt.Errorf("a { without a } behind it: %s", allowed)
	}
	name := s[1 : 1+end]
	f, ok := fieldNamed(name)
	if !ok {
		return none, 0, fmt.Errorf("unknown name %q: %s", name, allowed)
	}
	return f, len(name) + 2, nil
}

func fieldNamed(name string) (field, bool) {
	switch name {
	case "type":
		return fieldType, true
	case "project":
		return fieldProject, true
	case "environment":
		return fieldEnvironment, true
	}
	return none, false
}

// Empty stands in a name for an attribute that an event does not have, as the
// environment of what concerns a whole project.
const Empty = "_"

// AppendName appends the name of a topic, a subject or a tenant for e: it is as
// by Append, except that [Empty] stands for an attribute that e does not have.
// "auth.{environment}" becomes "auth._" and not "auth.", which exists nowhere.
// Values that may be empty, as of labels and tags, are for Append.
func (t *Template) AppendName(dst []byte, e *relay.Event, escape func(dst []byte, value string) []byte) []byte {
	for i := range t.parts {
		p := &t.parts[i]
		if p.field != none && p.field.of(e) == "" {
			dst = append(dst, Empty...)
			continue
		}
		dst = p.append(dst, e, escape)
	}
	return dst
}

// Append appends the text for e to dst. escape appends a value in the form in
// which the destination takes it; it sees the values only, never the literal
// text. Nil appends them as they are. An attribute that e does not have is the
// empty value. It allocates nothing but what dst has to grow by.
func (t *Template) Append(dst []byte, e *relay.Event, escape func(dst []byte, value string) []byte) []byte {
	for i := range t.parts {
		dst = t.parts[i].append(dst, e, escape)
	}
	return dst
}

func (p *part) append(dst []byte, e *relay.Event, escape func(dst []byte, value string) []byte) []byte {
	switch {
	case p.field == none:
		return append(dst, p.literal...)
	case escape == nil:
		return append(dst, p.field.of(e)...)
	default:
		return escape(dst, p.field.of(e))
	}
}

func (f field) of(e *relay.Event) string {
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

// Text is the text that the template was parsed from.
func (t *Template) Text() string { return t.text }

// Constant reports whether the template is the same for every event; then it
// is its Text.
func (t *Template) Constant() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].field == none
}

// Map returns the template's text with each name replaced by value: the
// pattern of all that the template can become, such as the subjects
// "events.*.*" of "events.{project}.{type}".
func (t *Template) Map(value string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == none {
			b.WriteString(p.literal)
		} else {
			b.WriteString(value)
		}
	}
	return b.String()
}
