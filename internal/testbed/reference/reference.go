// Package reference keeps the pages of deploy/docs/reference, and the description of the HTTP endpoints, equal to what
// is made from the code.
package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Page compares the page of deploy/docs/reference with text, or writes it if UPDATE_REFERENCE is set.
func Page(t *testing.T, page, text string) {
	t.Helper()
	File(t, "deploy/docs/reference/"+page, text)
}

// File is Page for any file of the repository. It reports whether it has written the file.
func File(t *testing.T, path, text string) (written bool) {
	t.Helper()
	file := filepath.Join(Root(t), filepath.FromSlash(path))
	if os.Getenv("UPDATE_REFERENCE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644)) //nolint:gosec // it is public
		return true
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(have), text, "%s is stale; renew it with make reference", path)
	return false
}

// Root is the repository's folder.
func Root(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	for ; err == nil && filepath.Dir(folder) != folder; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
	}
	_, here, _, _ := runtime.Caller(0)
	t.Fatalf("no go.mod is around the test of %s", here)
	return ""
}

// Row is a row of a table in Markdown.
func Row(cells ...string) string {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// Head is the head of a table.
func Head(titles ...string) string {
	return "\n" + Row(titles...) + strings.Repeat("|---", len(titles)) + "|\n"
}

// Comments reads the comments of the fields of all structs in a folder, by TYPE.FIELD.
func Comments(folder string) map[string]string {
	comments := map[string]string{}
	paths, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil || strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			section, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range section.Fields.List {
				for _, name := range field.Names {
					text := field.Doc.Text() + field.Comment.Text()
					comments[spec.Name.Name+"."+name.Name] = DocLink.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
				}
			}
			return true
		})
	}
	return comments
}

// DocLink is a link in a Go comment.
var DocLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)
