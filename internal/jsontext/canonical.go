package jsontext

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
