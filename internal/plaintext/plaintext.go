// Package plaintext keeps text of strangers from steering its reader's terminal or chat,
// and from hiding anything in it.
package plaintext

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Steers reports whether a rune may steer a terminal, or hide or reorder text in it:
// control and format characters, line and paragraph separators, invisible characters and
// selectors, and the replacement for undecodable bytes.
func Steers(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsControl(r) ||
		unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Replace puts a rune in place of each steering one.
func Replace(text string, with rune) string {
	return strings.Map(func(r rune) rune {
		if Steers(r) {
			return with
		}
		return r
	}, text)
}

// Line makes one line of at most limit characters. One space stands for a run of white
// space and steering characters, and "…" for the rest of a longer text.
func Line(text string, limit int) string {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || Steers(r) }), " ")
	n := 0
	for at := range line {
		if n++; n == limit && len([]rune(line[at:])) > 1 {
			return strings.TrimRight(line[:at], " ") + "…"
		}
	}
	return line
}

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
