package meaning

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/plaintext"
)

const (
	maxName = 64  // characters of a name in a sentence
	maxText = 120 // characters of a value in a sentence
)

// quote shows a name from a state in backquotes, on one line and cut. It escapes
// invisible characters, and those changing the direction of writing.
func quote(name string) string { return "`" + visible(name, maxName) + "`" }

func quoteJSON(raw json.RawMessage) string { return "`" + visible(string(raw), maxText) + "`" }

// quoteValue shows a string as a name, and another value as JSON.
func quoteValue(v any) string {
	if s, ok := v.(string); ok {
		return "`" + visible(s, maxText) + "`"
	}
	return quoteJSON(jsondiff.Encode(v))
}

// visible gives at most limit characters of text, each of them printable.
func visible(text string, limit int) string {
	var out strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > limit {
			out.WriteString("…")
			break
		}
		// People compare quoted names by eye, so other spaces and unassigned characters are
		// escaped too, and no backquote ends the quotation early.
		if plaintext.Steers(r) || !unicode.IsPrint(r) || r == '`' {
			fmt.Fprintf(&out, "\\u{%x}", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// several lists the first few names, and counts the rest of n.
func several(names []string, n int) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	if more := n - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(quoted, ", "), more)
	}
	if last := len(quoted) - 1; last > 0 {
		return strings.Join(quoted[:last], ", ") + " and " + quoted[last]
	}
	return strings.Join(quoted, "")
}

// plural is "1 action" or "2 actions".
func plural(n int, word, words string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %s", n, words)
}
