package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// State is a JSON state that was decoded once, for all who compare or judge it. The zero value
// is no state at all.
type State struct {
	JSON json.RawMessage // in canonical form; nil for no state
	// Value is what it decodes to. Numbers are a [json.Number] with the digits of the canonical
	// form, so equal numbers are equal strings.
	Value any
}

// None reports whether there is no such thing: no state, or null.
func (s State) None() bool { return s.Value == nil }

// Read reads a state as it was received; nothing is the zero State. Errors are those of
// [Canonical].
func Read(raw json.RawMessage) (State, error) {
	if len(raw) == 0 {
		return State{}, nil
	}
	canonical, err := Canonical(raw)
	if err != nil {
		return State{}, err
	}
	return ReadCanonical(canonical)
}

// ReadCanonical is [Read] for a state that is in canonical form already, as those in the audit
// trail are.
func ReadCanonical(canonical json.RawMessage) (State, error) {
	if len(canonical) == 0 {
		return State{}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	s := State{JSON: canonical}
	if err := dec.Decode(&s.Value); err != nil {
		return State{}, fmt.Errorf("decode JSON: %w", err)
	}
	return s, nil
}

// Decode is the value of [Read].
func Decode(raw json.RawMessage) (any, error) {
	s, err := Read(raw)
	if err == nil && s.JSON == nil {
		_, err = Canonical(raw) // nothing is no JSON
	}
	return s.Value, err
}

// Encode returns a decoded value's JSON again. Members come out sorted, so equal values
// have equal bytes.
func Encode(v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // never: a decoder made v
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// Shorten cuts a value longer than limit bytes, for a reader: a string to its beginning,
// another value to its size.
func Shorten(raw json.RawMessage, limit int) json.RawMessage {
	if len(raw) <= limit {
		return raw
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return Encode(fmt.Sprintf("(%d bytes of JSON)", len(raw)))
	}
	cut := limit / 2
	if len(s) <= cut {
		return Encode(s)
	}
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return Encode(fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s)))
}
