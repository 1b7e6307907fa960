package config

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

type object = map[string]any

// TestSchemaIs compares schema.json with what the structs and their comments say.
func TestSchemaIs(t *testing.T) {
	t.Parallel()
	g := schemaOf{t: t, comments: commentsOf(t), definitions: object{}}
	root := g.section(reflect.TypeFor[Config]())
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "The configuration of auditrelay"
	root["definitions"] = g.definitions
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(root))
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("schema.json", made.Bytes(), 0o600))
		return
	}
	assert.Equal(t, string(schema), made.String(),
		"the structs have changed; renew the schema with UPDATE_GOLDEN=1 go test ./config -run TestSchemaIs")
}

// demanded are the fields that validation requires in code, and not by their tags.
var demanded = map[string][]string{
	"Config":      {"environments"},
	"Environment": {"project", "environment"},
	"Sink":        {"name"},

	"StreamRelay":       {"hostname"},
	"StreamDatadog":     {"api_key"},
	"StreamGrafanaLoki": {"hostname", "username", "password"},
	"Witness":           {"key"},

	"Kafka":   {"brokers"},
	"Webhook": {"url"},
}

// forms are the forms of texts that validation checks in code. An empty text stands for the default,
// where the field is not required. Of a listener's address, Parse knows more.
var forms = map[string]string{
	"Sink.name":             aName,
	"NATS.create_stream":    aName,
	"Journal.stream_prefix": aName,

	"Environment.project":     aSlug,
	"Environment.environment": aSlug,

	"Ingest.listen":     aListener,
	"Admin.listen":      aListener,
	"Console.listen":    aListener,
	"AuditServe.listen": aListener,
}

const (
	aName     = `^[-_A-Za-z0-9]{1,64}$`
	aSlug     = `^\.*[^\x00-\x20\x7f/.][^\x00-\x20\x7f/]*$`
	aListener = `^(localhost|\[?[0-9A-Fa-f:.]+\]?)?:[0-9]+$`
)

// aDuration is the form of a duration. One with a check is not negative.
func aDuration(check string) string {
	const unit, zero = `(ns|us|µs|μs|ms|s|m|h)`, `(0+(\.0*)?|\.0+)`
	form := `(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)` + unit + `)+)$`
	if check == "" {
		return `^[-+]?` + form
	}
	return `^\+?` + form + `|^-(0|(` + zero + unit + `)+)$`
}

// schemaOf makes a schema from types. A section that is used is one of its definitions.
type schemaOf struct {
	t           *testing.T
	comments    map[string]string // by TYPE.FIELD
	definitions object
}

// withVariable is a text that holds an environment variable, whose value only the relay knows.
const withVariable = `\$\{`

func (g schemaOf) section(t reflect.Type) object {
	properties, required := object{}, append([]string{}, demanded[t.Name()]...)
	comment := ""
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		if own := g.comments[t.Name()+"."+field.Name]; own != "" || !strings.Contains(comment, field.Name) && !strings.Contains(comment, name) {
			comment = own
		}
		property := g.value(field.Type, field.Tag)
		if field.Tag.Get("check") == "required" {
			required = append(required, name)
		}
		if slices.Contains(required, name) {
			property = notEmpty(property)
		}
		if form := forms[t.Name()+"."+name]; form != "" {
			property["pattern"] = form + `|^$|` + withVariable
		}
		assert.NotEmptyf(g.t, comment, "%s.%s has no comment, which editors and the reference show", t.Name(), field.Name)
		property["description"] = comment
		if value := field.Tag.Get("default"); value != "" {
			property["default"] = defaultOf(field.Type, value)
		}
		if t.Name() == "Settings" && name == "intervals" {
			property["propertyNames"] = object{"enum": SettingKinds()}
		}
		properties[name] = property
	}
	made := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		made["required"] = required
	}
	if one := oneDestination(t); t == reflect.TypeFor[Sink]() {
		made["oneOf"] = one
	}
	return made
}

// notEmpty takes the empty values out of what a field may hold.
func notEmpty(value object) object {
	if list := value["items"]; list != nil {
		return object{"type": "array", "minItems": 1, "items": list}
	}
	return object{"type": []string{"string", "number", "boolean"}, "minLength": 1}
}

// oneDestination says that exactly one of the sections of a sink is given.
func oneDestination(t reflect.Type) (one []any) {
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name != "-" && field.Type.Implements(reflect.TypeFor[section]()) {
			one = append(one, object{"required": []string{name}, "properties": object{name: object{"type": "object"}}})
		}
	}
	return one
}

func defaultOf(t reflect.Type, text string) any {
	if t.Kind() == reflect.Int || t.Kind() == reflect.Float64 {
		return json.Number(text)
	}
	return text
}

// value is what a field may hold. A null is as good as no field at all.
func (g schemaOf) value(t reflect.Type, tag reflect.StructTag) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, inWords := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	null := object{"type": "null"}
	switch {
	case t == reflect.TypeFor[secret.Text]():
		return object{"type": []string{"string", "number", "boolean", "null"}}
	case t == reflect.TypeFor[time.Duration]():
		return object{"anyOf": []any{
			matching(aDuration(tag.Get("check")) + `|` + withVariable), object{"const": 0}, null,
		}}
	case t == reflect.TypeFor[Size]():
		return object{"anyOf": []any{
			object{"type": "integer"}, matching(`^\s*[-+]?[0-9]+ *(TiB|GiB|MiB|KiB|TB|GB|MB|kB|B)?\s*$|` + withVariable), null,
		}}
	case t.Kind() == reflect.Struct:
		g.define(t)
		all := []any{object{"$ref": "#/definitions/" + t.Name()}, null}
		if inWords {
			all = append(all, object{"const": "observe"}, matching(withVariable))
		}
		return object{"anyOf": all}
	case t.Kind() == reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": g.value(t.Elem(), "")}
	case t.Kind() == reflect.Map:
		value := g.value(t.Elem(), "")
		value["not"] = object{"type": "null"} // a name without a value is an error
		return object{"type": []string{"object", "null"}, "additionalProperties": value}
	}
	return scalarSchema(t, tag.Get("check"))
}

func (g schemaOf) define(t reflect.Type) {
	if _, made := g.definitions[t.Name()]; made {
		return
	}
	g.definitions[t.Name()] = nil
	g.definitions[t.Name()] = g.section(t)
}

func matching(pattern string) object { return object{"type": "string", "pattern": pattern} }

// scalarSchema is for the values of which the check knows only the text.
func scalarSchema(t reflect.Type, check string) object {
	null := object{"type": "null"}
	switch t.Kind() {
	case reflect.Bool:
		return object{"anyOf": []any{object{"type": "boolean"}, matching(`^(true|false)$|` + withVariable), null}}
	case reflect.Int, reflect.Float64:
		kind, text := "integer", `^[-+]?[0-9_]+$|`
		if t.Kind() == reflect.Float64 {
			kind, text = "number", `^[-+]?([0-9.]|[iI]nf|[nN]a[nN]|INF)|`
		}
		number := object{"type": kind}
		if low, high, ok := strings.Cut(check, ".."); ok {
			number["minimum"], number["maximum"] = json.Number(low), json.Number(high)
		}
		return object{"anyOf": []any{number, object{"const": 0}, matching(text + withVariable), null}}
	}
	if strings.Contains(check, "|") { // an empty text stands for the default
		return object{"anyOf": []any{object{"enum": strings.Split(check, "|")}, matching(`^$|` + withVariable), null}}
	}
	return object{"type": []string{"string", "number", "boolean", "null"}}
}

// severalWords is a field's name in Go, which a comment may hold; a reader of the schema knows the
// name in YAML. A name of a single word reads well as it is.
var severalWords = regexp.MustCompile(`\b[A-Z]+[a-z]+[A-Z][A-Za-z]*\b|\b[A-Z]{2,}[a-z]+\b`)

// commentsOf reads the comments of all fields in this package.
func commentsOf(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	comments, names := map[string]string{}, map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				fieldComments(spec, comments, names)
			}
			return true
		})
	}
	require.NotEmpty(t, comments)
	for field, comment := range comments {
		comments[field] = severalWords.ReplaceAllStringFunc(comment, func(name string) string { return cmp.Or(names[name], name) })
	}
	return comments
}

func fieldComments(spec *ast.TypeSpec, comments, names map[string]string) {
	section, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range section.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		for _, ident := range field.Names {
			names[ident.Name] = tag.Get("yaml")
			comments[spec.Name.Name+"."+ident.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
		}
	}
}
