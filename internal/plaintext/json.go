package plaintext

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// JSON is JSON without steering characters, as the same value: its escapes stand for them. The line
// ends between values stay.
func JSON(raw []byte) string {
	return Escape(raw, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// Escape puts a text in place of each steering character, except for line ends.
func Escape(raw []byte, escape func(rune) string) string {
	if !bytes.ContainsFunc(raw, SteersLines) {
		return string(raw)
	}
	var out strings.Builder
	for _, r := range string(raw) {
		if SteersLines(r) {
			out.WriteString(escape(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// SteersLines is [Steers] for a text of several lines.
func SteersLines(r rune) bool { return r != '\n' && Steers(r) }
