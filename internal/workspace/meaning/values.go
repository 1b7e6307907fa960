package meaning

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// elementsOf gives the elements of an array that have a type, and skips others.
func elementsOf[T any](v any) []T {
	elements, _ := v.([]any)
	out := make([]T, 0, len(elements))
	for _, element := range elements {
		if one, ok := element.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

func objects(v any) []map[string]any { return elementsOf[map[string]any](v) }

func stringsOf(v any) []string { return elementsOf[string](v) }

// memberOf follows names into objects, nil where there is nothing.
func memberOf(v any, names ...string) any {
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// textOf is a string member, else "".
func textOf(v any, names ...string) string {
	s, _ := memberOf(v, names...).(string)
	return s
}

// raw is a value's JSON; nil for a missing value.
func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	return jsontext.Encode(v)
}

// only is the JSON of a text if there is one only.
func only(texts []string) json.RawMessage {
	if len(texts) != 1 {
		return nil
	}
	return jsontext.Encode(texts[0])
}

// byKey indexes objects by a member. The second of one id, and those after it, have "#2"
// and so on after it. Objects without an id are skipped.
func byKey(v any, key string) map[string]map[string]any {
	m, seen := map[string]map[string]any{}, map[string]int{}
	for _, o := range objects(v) {
		id, ok := o[key].(string)
		if !ok {
			continue
		}
		unique := id
		for m[unique] != nil {
			seen[id]++
			unique = id + "#" + strconv.Itoa(seen[id]+1)
		}
		m[unique] = o
	}
	return m
}

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
	return quoteJSON(jsontext.Encode(v))
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
