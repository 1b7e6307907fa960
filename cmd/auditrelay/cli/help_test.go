package cli

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

// Each command has its text in the help files, and each text its command.
func TestEachCommandHasItsHelp(t *testing.T) {
	t.Parallel()
	left := maps.Clone(helpTexts())
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		if text, known := left[name]; assert.Truef(t, known, "the help has no text on %s", name) {
			assert.NotEmpty(t, text.short, name)
			assert.Truef(t, cmd.HasSubCommands() || text.examples != "", "%s has no examples", name)
			assert.Truef(t, cmd.HasSubCommands() || cmd.Long == "" || strings.Contains(cmd.Long, "\n\nExit codes: 0 "), "%s does not tell its exit codes", name)
		}
		delete(left, name)
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(Program{}.newRoot())
	assert.Empty(t, left, "these texts are of no command")
	assert.Panics(t, func() { described("trail shew") })
}

// Each command's help fits a terminal of 80 columns, and says the same as elsewhere.
func TestHelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("\\\n", " ", "#", " ").Replace(text)), " ")
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		var narrow, wide bytes.Buffer
		printHelp(cmd, &narrow, 80)
		printHelp(cmd, &wide, 10_000)
		for line := range strings.Lines(narrow.String()) {
			if strings.HasPrefix(line, "      --match '") {
				continue // a quoted expression is not broken
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, "%s: %q", cmd.CommandPath(), line)
		}
		for _, part := range []string{cmd.Long, cmd.UseLine(), cmd.Flags().FlagUsages()} {
			for word := range strings.FieldsSeq(part) {
				assert.Contains(t, narrow.String(), word, cmd.CommandPath())
			}
		}
		assert.Equal(t, len(words(wide.String())), len(words(narrow.String())), cmd.CommandPath())
		for _, below := range cmd.Commands() {
			assert.Contains(t, narrow.String(), "  "+below.Name()+" ", cmd.CommandPath())
			visit(below)
		}
	}
	visit(Program{}.newRoot())
}
