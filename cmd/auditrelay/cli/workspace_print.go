package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// printOutcome prints an answer of the API: as JSON with its ids, and else the resource alone. In the
// form of a table, a list of objects is one, and anything else is YAML.
func printOutcome(w io.Writer, form string, out workspace.Outcome) error {
	switch {
	case form == "json":
		return say(w, "%s", indented(jsondiff.Encode(out)))
	case len(out.Result) == 0:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(out.Result))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	list, _ := value.([]any)
	if columns := columnsOf(list); len(columns) > 0 && form != "yaml" {
		return show(w, list, func(p *page, list []any) { p.objects(columns, list) })
	}
	_, err := io.WriteString(w, asYAML(jsondiff.Encode(value)))
	return err
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

// plain takes away the braces and quotation marks, except for those of a list of plain values, which
// stands on one line. A text that would be read as something else keeps them.
func plain(node *yaml.Node) {
	node.Style = 0
	nested := func(inner *yaml.Node) bool { return inner.Kind != yaml.ScalarNode }
	if node.Kind == yaml.SequenceNode && !slices.ContainsFunc(node.Content, nested) {
		node.Style = yaml.FlowStyle
	}
	for _, inner := range node.Content {
		plain(inner)
	}
}

// objects adds a table of objects.
func (p *page) objects(columns []string, list []any) {
	p.row(strings.ToUpper(strings.Join(columns, "\t")))
	for _, element := range list {
		object, _ := element.(map[string]any)
		cells := make([]any, len(columns))
		for i, column := range columns {
			cells[i] = cell(object[column])
		}
		p.row(cells...)
	}
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
