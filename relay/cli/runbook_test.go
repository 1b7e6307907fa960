package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each command in the runbook, and each link, is there: nobody finds out at night.
func TestRunbookNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	const dir = "../../deploy/prometheus/runbook"
	files, err := filepath.Glob(dir + "/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	commands := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`auditrelay ([^`]+)`").FindAllStringSubmatch(string(text), -1) {
			cmd, rest, err := Program{}.newRoot().Find(strings.Fields(m[1]))
			if assert.NoError(t, err, "%s: %s", file, m[0]) {
				assert.NoError(t, cmd.ParseFlags(rest), "%s: %s", file, m[0])
				assert.False(t, cmd.HasSubCommands(), "%s: %s is no whole command", file, m[0])
				commands++
			}
		}
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			assert.FileExists(t, filepath.Join(dir, m[1]), file)
		}
	}
	require.Greater(t, commands, 20)
}
