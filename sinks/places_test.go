package sinks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// destinationFields returns config.Sink's fields for the built-in destinations.
func destinationFields() (fields []reflect.StructField) {
	others := []string{"Match", "Redact", "Custom"}
	for field := range reflect.TypeFor[config.Sink]().Fields() {
		if field.Type.Kind() == reflect.Pointer && !slices.Contains(others, field.Name) {
			fields = append(fields, field)
		}
	}
	return fields
}

// The switch is the only place where a section becomes a sink.
func TestEachSectionHasItsCase(t *testing.T) {
	t.Parallel()
	fields := destinationFields()
	require.NotEmpty(t, fields)
	for _, field := range fields {
		var s config.Sink
		reflect.ValueOf(&s).Elem().FieldByIndex(field.Index).Set(reflect.New(field.Type.Elem()))
		if sink, err := (Deps{}).destination(s); err != nil {
			assert.NotContains(t, err.Error(), errNoCase.Error(), field.Name)
		} else {
			require.NoError(t, sink.Close())
		}
	}
}

// A further sink touches its section, its package and the switch. So nothing else in the
// product may name a section, or import a sink's package.
func TestNothingElseNamesAKindOfSink(t *testing.T) {
	t.Parallel()
	var sections []string
	for _, field := range destinationFields() {
		sections = append(sections, field.Type.Elem().Name())
	}
	allowed := map[string]string{
		"cmd/auditrelay/cli/deadletters.go:sinks/file":    "an export has the lines of a file sink",
		"cmd/auditrelay/cli/trail_source.go:sinks/kafka":  "a sink's own copy is read over the sink's connection",
		"cmd/auditrelay/cli/trail_source.go:config.Kafka": "and with its section",
	}
	for _, dir := range []string{"relay", "internal", "sinks", "cmd/auditrelay"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", dir), func(path string, entry fs.DirEntry, err error) error {
			name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (name == "internal/testbed" || strings.Count(name, "/") == 1 && strings.HasPrefix(name, "sinks/")):
				return filepath.SkipDir
			case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && name != "sinks/sinks.go":
				for _, found := range named(t, path, sections) {
					assert.NotEmpty(t, allowed[name+":"+found], "%s names %s: a kind of sink has its section, its package and the switch", name, found)
				}
			}
			return nil
		}))
	}
}

// named returns the packages of sinks that a file imports, and the sections that it names.
func named(t *testing.T, path string, sections []string) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, spec := range file.Imports {
		if _, below, ok := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/auditrelay/sinks/"); ok {
			found = append(found, "sinks/"+below)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "config" && slices.Contains(sections, s.Sel.Name) {
				found = append(found, "config."+s.Sel.Name)
			}
		}
		return true
	})
	return found
}
