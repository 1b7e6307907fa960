package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

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
	if !bytes.ContainsFunc(raw, steersJSON) {
		return string(raw)
	}
	var out strings.Builder
	for _, r := range string(raw) {
		switch {
		case !steersJSON(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// steersJSON makes an exception of the line ends between values.
func steersJSON(r rune) bool { return r != '\n' && plaintext.Steers(r) }

// encodeLine writes a value as JSON on one line, without the terminal's control characters.
func encodeLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, escaped(text))
	return err
}
