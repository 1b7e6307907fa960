package jsontext

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// Canonical returns raw in the canonical form of RFC 8785: equal JSON has equal bytes, so that
// anyone can compute a record's hash again.
//
// RFC 8785 knows numbers only as doubles, and rounds the others. In a trail this would hide a
// change, so such a number becomes a string of the digits as received, as the RFC's appendix D
// advises. Invalid JSON, duplicate names and lone surrogates are errors; so is nesting deeper
// than 10,000.
func Canonical(raw []byte) ([]byte, error) {
	out, err := jcs.Transform(quoteWideNumbers(raw))
	if err != nil {
		return nil, fmt.Errorf("make JSON canonical: %w", err)
	}
	return out, nil
}

// Hash returns the SHA-256 of canonical JSON, in hex.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// quoteWideNumbers puts quotes around the numbers that a double would round. It leaves
// everything else alone, including invalid JSON, which the parser called next will find.
func quoteWideNumbers(raw []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(raw); {
		end := tokenEnd(raw, i)
		token := raw[i:end]
		if isNumberByte(token[0]) && json.Valid(token) && loses(string(token)) {
			fmt.Fprintf(&out, "%q", token)
		} else {
			out.Write(token)
		}
		i = end
	}
	return out.Bytes()
}

// tokenEnd returns the end of the string, number or single byte at i.
func tokenEnd(raw []byte, i int) int {
	switch c := raw[i]; {
	case c == '"':
		for i++; i < len(raw) && raw[i] != '"'; i++ {
			if raw[i] == '\\' {
				i++
			}
		}
		return min(i+1, len(raw))
	case isNumberByte(c):
		for i < len(raw) && isNumberByte(raw[i]) || i < len(raw) && bytes.IndexByte([]byte("+.eE"), raw[i]) >= 0 {
			i++
		}
		return i
	}
	return i + 1
}

func isNumberByte(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// loses reports whether number, which is valid JSON, has another value after a conversion to a
// double and back. Decimal digits are compared, not bits, so 0.1 stays 0.1.
func loses(number string) bool {
	digits, exponent := decimal(number)
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return true
	}
	gotDigits, gotExponent := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return digits != gotDigits || exponent != gotExponent
}

// decimal splits a JSON number into its significant digits, with their sign and without zeros
// at either end, and the power of ten of the last one. Zero is "", 0. If the power is too large
// for an int, the result is the number itself, which equals no other.
func decimal(number string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(number), "e")
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return number, 0
		}
	}
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(all, "0")
	if trimmed == "" {
		return "", 0
	}
	return sign + trimmed, exponent + len(all) - len(trimmed) - len(fraction)
}

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
