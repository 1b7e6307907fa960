package jsondiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Decode reads a state. Numbers become a [json.Number] with the digits of the canonical
// form, so equal numbers are equal strings. Errors are those of [Canonical].
func Decode(raw json.RawMessage) (any, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return v, nil
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
