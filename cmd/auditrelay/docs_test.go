package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// documents are the Markdown files for people, with the most words each may have; 0 is no bound.
func documents(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	require.NoError(t, fs.WalkDir(os.DirFS("../.."), ".", func(name string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(name, ".") && name != "." && !strings.HasPrefix(name, ".github")
		if entry.IsDir() && (hidden || name == "bin" || name == "dist") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			all[name] = 0
		}
		return err
	}))
	all["README.md"], all["ARCHITECTURE.md"] = 1600, 1400
	return all
}

func TestDocumentsStayShort(t *testing.T) {
	t.Parallel()
	for name, most := range documents(t) {
		if words := len(strings.Fields(readFile(t, name))); most > 0 {
			assert.LessOrEqualf(t, words, most, "%s has %d words: move reference detail to deploy/README.md, to a package comment or to a help text", name, words)
		}
	}
}

// TestDocumentsNameWhatIsThere follows the links of the documents, and looks for the
// tests and metrics they name.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#]+?)?(#[^)]+)?\)`)
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+|auditrelay_[a-z_]+)")
	tests, metrics := testSource(t), readFile(t, "deploy/docs/reference/metrics.md")
	for name := range documents(t) {
		text := readFile(t, name)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := name
			if strings.Contains(m[1], "://") {
				continue
			}
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join("..", "..", target)); !assert.NoError(t, err, "%s links %s", name, m[0]) || m[2] == "" {
				continue
			}
			assert.Truef(t, slices.Contains(anchors(readFile(t, target)), m[2]), "%s links %s", name, m[0])
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			there := strings.Contains(tests, "func "+m[1]+"(") || strings.Contains(metrics, "`"+m[1]+"`") || strings.HasSuffix(m[1], "_")
			assert.Truef(t, there || name == "CHANGELOG.md", "%s names %s, which is not there", name, m[1])
		}
	}
}

// testSource is the text of all tests.
func testSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, line := range goList(t, "-f", `{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}`, "./...") {
		fields := strings.Fields(line)
		for _, file := range fields[1:] {
			text, err := os.ReadFile(filepath.Join(fields[0], file))
			require.NoError(t, err)
			all.Write(text)
		}
	}
	return all.String()
}

// TestDocumentsNameCommands looks for the commands and flags that the documents name, in the
// reference, which is made from the code.
func TestDocumentsNameCommands(t *testing.T) {
	t.Parallel()
	helps := map[string]string{}
	for _, section := range strings.Split(readFile(t, "deploy/docs/reference/commands.md"), "\n## ")[1:] {
		path, help, _ := strings.Cut(section, "\n")
		helps[path] = help
	}
	require.Greater(t, len(helps), 50)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`|\n    [^\n]*")
	call := regexp.MustCompile(`\bauditrelay((?: [a-z][a-z-]*)+)(?:[^a-z/\n;&-][^\n;&]*|$|\n)`)
	for name := range documents(t) {
		if name == "CHANGELOG.md" || name == "deploy/docs/reference/commands.md" {
			continue
		}
		for _, block := range code.FindAllString(readFile(t, name), -1) {
			for _, m := range call.FindAllStringSubmatch(strings.ReplaceAll(block, "\\\n", " "), -1) {
				path := "auditrelay"
				for word := range strings.FieldsSeq(m[1]) {
					if helps[path+" "+word] == "" {
						assert.Falsef(t, strings.Contains(helps[path], "Available Commands:"), "%s: %s has no command %s", name, path, word)
						break
					}
					path += " " + word
				}
				for _, flag := range regexp.MustCompile(` (--[a-z-]+)`).FindAllStringSubmatch(m[0], -1) {
					assert.Truef(t, strings.Contains(helps[path], flag[1]), "%s: %s has no flag %s", name, path, flag[1])
				}
			}
		}
	}
}

// TestTheTableOfStatusNamesEverything: the table of /status names each section, and each of its members that the
// description of the endpoints has.
func TestTheTableOfStatusNamesEverything(t *testing.T) {
	t.Parallel()
	type schema struct {
		Ref        string `json:"$ref"`
		AnyOf      []schema
		Items      *schema
		Properties map[string]schema
	}
	var api struct {
		Components struct{ Schemas map[string]schema }
	}
	require.NoError(t, json.Unmarshal([]byte(readFile(t, "internal/control/admin/openapi.json")), &api))
	all := api.Components.Schemas
	sections := all["Status"].Properties
	require.Greater(t, len(sections), 10)
	text := readFile(t, "deploy/README.md")
	for name, s := range sections {
		for s = s.AnyOf[0]; s.Ref != "" || s.Items != nil; {
			if s.Items != nil {
				s = *s.Items
			}
			s = all[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		}
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\|.*$").FindString(text)
		require.NotEmpty(t, row, "the section %s has no row", name)
		for member := range s.Properties {
			assert.Truef(t, strings.Contains(row, "`"+member+"`") || strings.Contains(row, "trail list --output json"), "%s lacks %s", name, member)
		}
	}
}

// anchors are those of a document's headings, as GitHub makes them.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	return all
}

// destinations are the pages of deploy/docs, one for each kind of sink.
func destinations() (pages []string) {
	for _, kind := range []string{"kafka", "nats", "loki", "datadog", "webhook", "file"} {
		pages = append(pages, "deploy/docs/"+kind+".md")
	}
	return pages
}

// without takes the sections out of a configuration that an example has itself.
func without(text, example string) string {
	for _, section := range regexp.MustCompile(`(?m)^[a-z_]+:`).FindAllString(example, -1) {
		text = regexp.MustCompile(`(?m)^`+section+`.*\n(?:[ #-].*\n)*`).ReplaceAllString(text+"\n", "")
	}
	return text
}

// TestExamplesAreValid puts each further example of YAML in place of the quick start's
// own sections, and checks the whole.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	start, _, found := strings.Cut(quickStart(t), "\nsinks:")
	require.True(t, found)
	block := regexp.MustCompile("(?s)\n```yaml\n(.*?)```") // not indented: the quick start's is
	for name := range documents(t) {
		examples := block.FindAllStringSubmatch(readFile(t, name), -1)
		if strings.HasPrefix(name, "deploy/docs/") && slices.Contains(destinations(), name) {
			require.NotEmpty(t, examples, name)
		}
		for _, example := range examples {
			example[1] = regexp.MustCompile(`file:/[^\s"},]+`).ReplaceAllString(example[1], "$${WEBHOOK_SECRET}") // a reader's own
			_, warnings, err := config.Parse(name, []byte(without(start, example[1])+"\n"+example[1]), func(variable string) (string, bool) {
				known := []string{"WORKSPACE_KEY_ID", "WORKSPACE_KEY_SECRET", "REDACT_KEY", "WEBHOOK_SECRET", "PUSH_PASSWORD", "PUSH_KEY", "KAFKA_PASSWORD", "LOKI_PASSWORD", "DD_API_KEY"}
				return "0123456789abcdef0123456789abcdef", slices.Contains(known, variable)
			})
			require.NoErrorf(t, err, "%s: %s", name, example[1])
			assert.Empty(t, warnings, name)
		}
	}
}
