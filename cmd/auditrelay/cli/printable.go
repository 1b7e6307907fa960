package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// printable keeps the text of an event or a sink from steering the terminal. A dot takes
// the place of each, and columns keep their width.
func printable(text string) string { return plaintext.Replace(text, '·') }

// indented is JSON for people, with the terminal's control characters escaped. It is the
// same value for programs. Other text comes out printable.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return printable(string(raw))
	}
	return escaped(b.Bytes())
}

// escaped is JSON without the terminal's control characters.
func escaped(raw []byte) string {
	return escapedBy(raw, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// escapedBy replaces the terminal's control characters.
func escapedBy(raw []byte, escape func(rune) string) string {
	if !bytes.ContainsFunc(raw, steersJSON) {
		return string(raw)
	}
	var out strings.Builder
	for _, r := range string(raw) {
		if steersJSON(r) {
			out.WriteString(escape(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// steersJSON makes an exception of the line ends between values.
func steersJSON(r rune) bool { return r != '\n' && plaintext.Steers(r) }

// inertWriter writes JSON to a terminal, without its control characters: the same values, while
// a file or a pipe gets every byte as it is.
type inertWriter struct {
	to   io.Writer
	rest []byte // the first bytes of a character
}

func (w *inertWriter) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if utf8.RuneStart(text[len(text)-back]) {
			if !utf8.FullRune(text[len(text)-back:]) {
				whole -= back
			}
			break
		}
	}
	_, err := io.WriteString(w.to, escaped(text[:whole]))
	w.rest = bytes.Clone(text[whole:])
	return len(p), err
}

// encodeLine writes a value as JSON on one line, without the terminal's control characters.
func encodeLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, escaped(text))
	return err
}
