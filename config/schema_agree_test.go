package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// said is how those reasons of [Parse] begin that the schema gives too. All others are rules that
// only Parse can know: about the place of a file, about an address, or between two fields.
var said = []string{
	"unknown field", "must hold fields", "must hold names with values", "must be a list", "must be a single value",
	"not a duration", "not a size", "not a switch", "has no value; write one, or remove it",
	"is required", "must be 1 to 64 letters", "must be a slug",
}

// besides are the fields that are required next to others only.
var besides = regexp.MustCompile(`\.(application_key|search|search_url)$|(loki|nats|query|credentials\[\d+\])\.(username|password)$|redact\.hash_key$|^audit\.public_key$|^console\.(url|(oidc|certificates)\.roles)$|\.labels\.|\]$`)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("schema.json", document))
	compiled, err := compiler.Compile("schema.json")
	require.NoError(t, err)
	return compiled
}

// agree compares the schema with Parse.
func agree(t *testing.T, compiled *jsonschema.Schema, data []byte) {
	t.Helper()
	root, err := parseYAML(data)
	if err != nil || strings.Contains(string(data), "<<") || strings.Contains(string(data), "!") {
		return // no schema is asked about a file that is not YAML, and merge keys and tags are gone when it is
	}
	refusal := compiled.Validate(plain(root, 0))
	env := environment(map[string]string{"KEY": "hunter2-of-some-length", "WORKSPACE_KEY_ID": "a", "WORKSPACE_KEY_SECRET": "b"})
	_, _, err = Parse("a.yaml", data, env)
	if refusal != nil && err == nil {
		t.Fatalf("the schema refuses what Parse accepts: %v\n%s", refusal, data)
	}
	var found Errors
	if refusal != nil || !errors.As(err, &found) {
		return
	}
	if slices.ContainsFunc(found, func(p Problem) bool { return strings.HasPrefix(p.Reason, "is given twice") }) {
		return // a schema sees only one of them
	}
	if i := slices.IndexFunc(found, inSchema); i >= 0 {
		t.Fatalf("the schema accepts what Parse refuses: %v\n%s", found[i], data)
	}
}

// inSchema reports whether the schema has to refuse a file for this problem, too. It cannot see how
// a number is written, nor what a variable holds.
func inSchema(p Problem) bool {
	if strings.Contains(p.Value, "$") || json.Valid([]byte(p.Value)) || strings.HasPrefix(p.Reason, "is required") && besides.MatchString(p.Field) {
		return false
	}
	if p.Reason == "must be positive" {
		return !strings.HasPrefix(p.Field, "settings.intervals.")
	}
	return slices.ContainsFunc(said, func(reason string) bool { return strings.HasPrefix(p.Reason, reason) })
}

// plain turns a document into the values that a schema is asked about.
func plain(node *yaml.Node, depth int) any {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case depth > 50 || isNull(node):
		return nil
	case node.Kind == yaml.MappingNode:
		section := map[string]any{}
		for _, e := range entriesOf(node) {
			section[e.key.Value] = plain(e.value, depth+1)
		}
		return section
	case node.Kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range node.Content {
			list = append(list, plain(item, depth+1))
		}
		return list
	case node.Style == 0 && (node.Value == "true" || node.Value == "false"):
		return node.Value == "true"
	case node.Style == 0 && json.Valid([]byte(node.Value)) && !strings.HasPrefix(node.Value, `"`):
		return json.Number(node.Value)
	}
	return node.Value
}

// TestSchemaAndCheckAgree compares them on the example, on the files in testdata, and on files with
// a few values exchanged.
func TestSchemaAndCheckAgree(t *testing.T) {
	t.Parallel()
	compiled := compiledSchema(t)
	seeds := []string{
		string(Example()), minimal, uncommented(),
		minimal + "heartbeat: {interval: 5s}\n",                                                         // calls nobody
		minimal + "console: {oidc: {issuer: a, client_id: b}, certificates: {ca_file: c, roles: []}}\n", // is off
		minimal + "console: {listen: \":1\", url: \"https://a.example\", oidc: {issuer: \"https://b.example\", client_id: c}}\n",
	}
	files, err := filepath.Glob("testdata/*/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		seeds = append(seeds, string(data))
	}
	for _, seed := range seeds {
		agree(t, compiled, []byte(seed))
	}
	tries := 20_000
	if testing.Short() {
		tries = 1_000
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same cases each time
	for range tries {
		agree(t, compiled, []byte(exchanged(random, seeds[random.IntN(len(seeds))])))
	}
}

// exchanged gives some lines of a file other values, and takes some lines out.
func exchanged(random *rand.Rand, file string) string {
	values := []string{
		"", "0", "1", "-1", "5s", "5", "1.5", "1h30m", "10MiB", "10 kB", "true", "yes", "text", "[]", "[a]", "{}", "{a: b}", "null", `""`, `"5"`,
		`"true"`, "${KEY}", "observe", "enforce", "json", "none", "1_000", "0s", "1e3", "[{}]", "99999999999999999999",
		"-1s", "-0s", "+5s", "-1h30m", "a/b", "a b", ".", "..", ".a", "a.b", strings.Repeat("n", 65), "ünder", ":3100", "localhost:80", `"[::1]:443"`, "host:80",
	}
	lines := strings.Split(file, "\n")
	for range 1 + random.IntN(2) {
		i := random.IntN(len(lines))
		name, _, ok := strings.Cut(lines[i], ":")
		switch {
		case random.IntN(8) == 0 && len(lines) > 1:
			lines = slices.Delete(lines, i, i+1)
		case random.IntN(8) == 0:
			lines[i] = strings.Replace(lines[i], "e", "", 1)
		case ok:
			lines[i] = name + ": " + values[random.IntN(len(values))]
		}
	}
	return strings.Join(lines, "\n")
}

// FuzzSchema compares the schema with Parse on any file.
func FuzzSchema(f *testing.F) {
	compiled := compiledSchema(f)
	f.Add(Example())
	f.Add([]byte(uncommented()))
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, compiled, data) })
}
