package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// printState prints a resource of the API.
func printState(w io.Writer, form string, state json.RawMessage) error {
	if form == "json" {
		_, err := fmt.Fprintln(w, indented(state))
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(state))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	if form == "yaml" {
		_, err := io.WriteString(w, asYAML(jsondiff.Encode(value)))
		return err
	}
	return show(w, value, func(p *page, value any) { printRows(p.table, value) })
}

// asYAML writes JSON, which is YAML too, in the form that people know. A value with text that
// could steer the terminal stays in the form of JSON, with YAML's escapes.
func asYAML(state json.RawMessage) string {
	var node yaml.Node
	err := yaml.Unmarshal(state, &node)
	plain(&node)
	if text, failed := yaml.Marshal(&node); err == nil && failed == nil && !bytes.ContainsFunc(text, plaintext.SteersLines) {
		return string(text)
	}
	var b bytes.Buffer
	_ = json.Indent(&b, state, "", "  ") // cannot fail: it was encoded from a value
	return plaintext.Escape(b.Bytes(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }) + "\n"
}

// plain takes away the braces and quotation marks. A text that would be read as something else
// keeps them.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, inner := range node.Content {
		plain(inner)
	}
}

// printRows prints a list of objects as a table, any other value as lines of path and
// value.
func printRows(w io.Writer, value any) {
	if list, ok := value.([]any); ok && len(list) > 0 {
		if columns := columnsOf(list); len(columns) > 0 {
			_, _ = fmt.Fprintln(w, strings.ToUpper(strings.Join(columns, "\t")))
			for _, element := range list {
				object, _ := element.(map[string]any)
				cells := make([]string, len(columns))
				for i, column := range columns {
					cells[i] = cell(object[column])
				}
				_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
			}
			return
		}
	}
	printPaths(w, "", value)
}

// columnsOf are the members of a list's objects, the nested ones left out where there
// are simple ones. It is empty for a list of other values.
func columnsOf(list []any) []string {
	seen := map[string]bool{}
	for _, element := range list {
		object, ok := element.(map[string]any)
		if !ok {
			return nil
		}
		for name, member := range object {
			if _, nested := member.(map[string]any); !nested {
				seen[printable(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// cell shows a value in a table: a list by its size, text cut.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case []any:
		return fmt.Sprintf("%d", len(v))
	case string:
		return short(v)
	}
	return short(fmt.Sprint(value))
}

func printPaths(w io.Writer, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			printPaths(w, strings.TrimPrefix(path+"."+pathPart(name), "."), v[name])
		}
	case []any:
		if texts, ok := allTexts(v); ok {
			printPaths(w, path, strings.Join(texts, " "))
			return
		}
		for _, element := range v {
			name, rest := named(element)
			printPaths(w, path+"."+name, rest)
		}
	default:
		if path == "" { // the whole answer is one value
			_, _ = fmt.Fprintln(w, cell(v))
			return
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", path, cell(v))
	}
}

// pathPart is a name in a path. One that could be read as several parts is quoted.
func pathPart(name string) string {
	if name == "" || strings.ContainsAny(name, ". \"") {
		return printable(strconv.Quote(name))
	}
	return printable(name)
}

func allTexts(list []any) ([]string, bool) {
	texts := make([]string, len(list))
	for i, element := range list {
		text, ok := element.(string)
		if !ok {
			return nil, false
		}
		texts[i] = text
	}
	return texts, true
}

// names are the members with the name of an object in the API's lists.
var names = []string{"role_id", "resource_id", "scope", "profile_id", "template_id", "pem_file_id"}

// named gives the name of an object in a list, and its other members.
func named(element any) (name string, rest any) {
	object, _ := element.(map[string]any)
	for _, member := range names {
		if text, ok := object[member].(string); ok {
			others := maps.Clone(object)
			delete(others, member)
			return pathPart(text), others
		}
	}
	return "-", element
}
