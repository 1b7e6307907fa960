package workspacesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"
)

// object is a JSON object. Its user takes the fields one by one; fields left over, or of
// another type, become the error. Unlike encoding/json it tells "name" from "NAME", and
// refuses a field given twice.
type object struct {
	path   string // "destination_config.", empty at the top
	fields map[string]json.RawMessage
	errs   *fieldErrors
}

// fieldErrors keeps the first fault of a body.
type fieldErrors struct{ first error }

func (e *fieldErrors) add(path, problem string) {
	if e.first == nil {
		e.first = fmt.Errorf("%s: %s", path, problem)
	}
}

// parseBody reads a request's body as one JSON object.
func parseBody(body []byte) (*object, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("body is not valid UTF-8")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("body is empty, a JSON object is required")
	}
	if !json.Valid(body) {
		return nil, syntaxProblem(body)
	}
	o := &object{errs: &fieldErrors{}}
	if err := o.parse(body); err != nil {
		return nil, err
	}
	return o, nil
}

// syntaxProblem names the place where body stops being one JSON value.
func syntaxProblem(body []byte) error {
	var v any
	err := json.Unmarshal(body, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("body is not valid JSON at byte %d: %s", syntax.Offset, syntax.Error())
	}
	return errors.New("body is not valid JSON")
}

// parse splits raw, valid JSON, into fields.
func (o *object) parse(raw json.RawMessage) error {
	o.fields = map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%s must be a JSON object, not %s", o.name(), kindOf(raw))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("read %s: %w", o.name(), err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", o.name(), err)
		}
		name, _ := key.(string)
		if _, twice := o.fields[name]; twice {
			o.fail(name, "field is given twice")
		}
		o.fields[name] = value
	}
	return nil
}

func (o *object) name() string {
	if o.path == "" {
		return "body"
	}
	return o.path[:len(o.path)-1]
}

func (o *object) fail(field, problem string) { o.errs.add(o.path+field, problem) }

// take removes and returns a field; nil if it is missing.
func (o *object) take(field string) json.RawMessage {
	raw := o.fields[field]
	delete(o.fields, field)
	return raw
}

// require is take for a required field.
func (o *object) require(field string) json.RawMessage {
	raw := o.take(field)
	if raw == nil {
		o.fail(field, "field is required")
	}
	return raw
}

// text takes a required non-empty string.
func (o *object) text(field string) string {
	var s string
	if raw := o.require(field); raw != nil {
		if kindOf(raw) != "string" {
			o.fail(field, "must be a string, not "+kindOf(raw))
		} else if json.Unmarshal(raw, &s) != nil || s == "" {
			o.fail(field, "must not be empty")
		}
	}
	return s
}

// boolean takes a boolean, false if it is missing.
func (o *object) boolean(field string) bool {
	raw := o.take(field)
	if raw == nil {
		return false
	}
	if kindOf(raw) != "boolean" {
		o.fail(field, "must be a boolean, not "+kindOf(raw))
	}
	return raw[0] == 't'
}

// object takes a required object; nil if it is missing or no object.
func (o *object) object(field string) *object {
	raw := o.require(field)
	if raw == nil {
		return nil
	}
	return o.child(field, raw)
}

func (o *object) child(field string, raw json.RawMessage) *object {
	c := &object{path: o.path + field + ".", errs: o.errs}
	if err := c.parse(raw); err != nil {
		o.fail(field, "must be an object, not "+kindOf(raw))
		return nil
	}
	return c
}

// objects takes a required array of objects.
func (o *object) objects(field string) []*object {
	raw := o.require(field)
	if raw == nil {
		return nil
	}
	var items []json.RawMessage
	if kindOf(raw) != "array" || json.Unmarshal(raw, &items) != nil {
		o.fail(field, "must be an array, not "+kindOf(raw))
		return nil
	}
	out := make([]*object, 0, len(items))
	for i, item := range items {
		if c := o.child(fmt.Sprintf("%s[%d]", field, i), item); c != nil {
			out = append(out, c)
		}
	}
	return out
}

// done refuses all fields not taken.
func (o *object) done() {
	for _, field := range slices.Sorted(maps.Keys(o.fields)) {
		o.fail(field, "unknown field")
	}
}

// err is the first fault of the body.
func (o *object) err() error { return o.errs.first }

// kindOf names the JSON type of raw, valid JSON.
func kindOf(raw json.RawMessage) string {
	switch bytes.TrimSpace(raw)[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}
