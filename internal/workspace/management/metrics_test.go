package management

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// Each operation's series exist before its first call.
func TestEachOperationHasItsSeries(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`operation: +"([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			named[call{operation: m[1]}.label()] = true
		}
	}
	require.NotEmpty(t, named)
	delete(named, "migrate") // a command makes that call, and no relay
	for _, s := range kinds.All() {
		named[call{operation: s.Operation}.label()] = true
	}
	for operation := range named {
		assert.Contains(t, operations(), operation)
	}
	assert.Len(t, named, len(operations()))
}
