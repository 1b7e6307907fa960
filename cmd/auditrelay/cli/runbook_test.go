package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each command in the runbook, and each link, is there: nobody finds out at night.
func TestRunbookNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	const dir = "../../../deploy/prometheus/runbook"
	files, err := filepath.Glob(dir + "/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	commands := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`auditrelay ([^`]+)`").FindAllStringSubmatch(string(text), -1) {
			assert.False(t, isCommand(t, file, m[1]).HasSubCommands(), "%s: %s is no whole command", file, m[0])
			commands++
		}
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			assert.FileExists(t, filepath.Join(dir, m[1]), file)
		}
	}
	require.Greater(t, commands, 20)
}

// isCommand finds a command, and asserts that it has the flags of the text.
func isCommand(t *testing.T, where, text string) *cobra.Command {
	t.Helper()
	words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(strings.ReplaceAll(text, "TIME", "1h"), -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `"`)
	}
	root := Program{}.newRoot()
	cmd, rest, err := root.Find(words)
	if !assert.NoError(t, err, "%s: auditrelay %s", where, text) {
		return root
	}
	assert.NotSame(t, root, cmd, "%s: there is no auditrelay %s", where, text)
	assert.NoError(t, cmd.ParseFlags(rest), "%s: auditrelay %s", where, text)
	return cmd
}

// Each command in the help texts and the documents has the flags that they give it.
func TestTextsNameCommandsThatAreThere(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		texts[cmd.CommandPath()] = cmd.Long + "\n" + cmd.Example
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(Program{}.newRoot())
	for _, pattern := range []string{"../../../README.md", "../../../deploy/*.md", "../../../config/example.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[file] = string(text)
		}
	}
	quoted := regexp.MustCompile("['`]auditrelay ([^'`]+)['`]|(?m)^ +auditrelay ([a-z][^|<>#&\n]+)")
	commands := 0
	for where, text := range texts {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if line := m[1] + m[2]; !strings.ContainsAny(line, "|…[") && !strings.HasPrefix(line, "COMMAND") { // those are of several commands
				isCommand(t, where, line)
				commands++
			}
		}
	}
	require.Greater(t, commands, 200)
}
