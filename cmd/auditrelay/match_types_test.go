package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// TestMatchKnowsEveryType: the configuration warns about no type of the relay's own
// audit events.
func TestMatchKnowsEveryType(t *testing.T) {
	t.Parallel()
	stated := regexp.MustCompile(`\bType\w*(?::| =) +"([a-z_]+\.[a-z_]+)"`)
	types := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../../internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range stated.FindAllStringSubmatch(string(data), -1) {
			types[m[1]] = true
		}
		return err
	}))
	require.Greater(t, len(types), 8)
	for name := range types {
		text := fmt.Sprintf(`
data_dir: x
environments: [{project: p, environment: e}]
ingest: {anonymous: p/e}
sinks: [{name: f, match: {types: [%s]}, file: {path: y}}]
`, name)
		_, warnings, err := config.Parse("relay.yaml", []byte(text), os.LookupEnv)
		require.NoError(t, err)
		assert.Empty(t, warnings, "add it to relayTypes in config/sink_routing.go")
	}
}
