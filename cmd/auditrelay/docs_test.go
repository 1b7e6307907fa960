package main

import (
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

// documents are the Markdown files for people, with the most words each may have;
// 0 is no bound. All those below deploy and .github are among them.
func documents(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{"README.md": 1600, "ARCHITECTURE.md": 1400, "CONTRIBUTING.md": 0, "cmd/bench/README.md": 0}
	for _, folder := range []string{"deploy", ".github"} {
		require.NoError(t, fs.WalkDir(os.DirFS("../.."), folder, func(name string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(name, ".md") {
				all[name] = 0
			}
			return err
		}))
	}
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
	tests, metrics := goSource(t)
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
			assert.Containsf(t, anchors(readFile(t, target)), m[2], "%s links %s", name, m[0])
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			there := strings.Contains(tests, "func "+m[1]+"(") || isMetric(metrics, m[1])
			assert.Truef(t, there, "%s names %s, which no Go file has", name, m[1])
		}
	}
}

// isMetric reports whether source makes the metric: by its whole name, or by its end,
// if a room begins the names of all its metrics alike.
func isMetric(source, name string) bool {
	if strings.Contains(source, `"`+name+`"`) {
		return true
	}
	room, end, found := strings.Cut(strings.TrimPrefix(name, "auditrelay_"), "_")
	begins := strings.Contains(source, `"auditrelay_`+room+`_"`) || strings.Contains(source, `Subsystem: "`+room+`"`)
	return found && begins && strings.Contains(source, `"`+end+`"`)
}

// goSource is the text of all tests, and of all files with metrics.
func goSource(t *testing.T) (tests, metrics string) {
	t.Helper()
	var testing, making strings.Builder
	for _, line := range goList(t, "-f", `{{.Dir}} {{join .GoFiles " "}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}`, "./...") {
		fields := strings.Fields(line)
		for _, file := range fields[1:] {
			text, err := os.ReadFile(filepath.Join(fields[0], file))
			require.NoError(t, err)
			switch {
			case strings.HasSuffix(file, "_test.go"):
				testing.Write(text)
			case strings.Contains(string(text), "client_golang/prometheus"):
				making.Write(text)
			}
		}
	}
	return testing.String(), making.String()
}

// anchors are those of a document's headings, as GitHub makes them.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	return all
}

// TestExamplesAreValid puts each further example of YAML in place of the quick start's
// own sections, and checks the whole.
// destinations are the pages of deploy/docs, one for each kind of sink.
func destinations() (pages []string) {
	for _, kind := range []string{"kafka", "nats", "loki", "datadog", "webhook", "file"} {
		pages = append(pages, "deploy/docs/"+kind+".md")
	}
	return pages
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	start, _, found := strings.Cut(quickStart(t), "\nsinks:")
	require.True(t, found)
	block := regexp.MustCompile("(?s)\n```yaml\n(.*?)```") // not indented: the quick start's is
	for _, name := range append([]string{"README.md", "deploy/README.md", "deploy/witness.md", "deploy/policies.md"}, destinations()...) {
		examples := block.FindAllStringSubmatch(readFile(t, name), -1)
		require.NotEmpty(t, examples, name)
		for _, example := range examples {
			_, warnings, err := config.Parse(name, []byte(start+"\n"+example[1]), func(variable string) (string, bool) {
				known := []string{"WORKSPACE_KEY_ID", "WORKSPACE_KEY_SECRET", "REDACT_KEY", "WEBHOOK_SECRET", "KAFKA_PASSWORD", "LOKI_PASSWORD", "DD_API_KEY"}
				return "0123456789abcdef0123456789abcdef", slices.Contains(known, variable)
			})
			require.NoErrorf(t, err, "%s: %s", name, example[1])
			assert.Empty(t, warnings, name)
		}
	}
}
