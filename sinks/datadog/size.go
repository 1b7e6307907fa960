package datadog

import (
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// cut returns the longest start of text, in valid UTF-8, that takes at most room bytes between
// the quotes of a JSON string.
func cut(text []byte, room int) []byte {
	var one [16]byte
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRune(text[i:])
		room -= len(jsontext.AppendString(one[:0], text[i:i+size])) - len(`""`)
		if room < 0 {
			return text[:i]
		}
		i += size
	}
	return text
}
