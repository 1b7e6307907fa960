package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/reference"
)

// TestCommandReferenceIs compares the reference of the commands with their help.
func TestCommandReferenceIs(t *testing.T) {
	t.Parallel()
	var index, pages strings.Builder
	index.WriteString(reference.Head("command", "what it does"))
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Hidden {
			return
		}
		cmd.InitDefaultHelpFlag()
		if path := cmd.CommandPath(); cmd.HasParent() && !cmd.HasSubCommands() {
			index.WriteString(reference.Row("["+path+"](#"+strings.ReplaceAll(path, " ", "-")+")", cmd.Short))
		}
		var help strings.Builder
		printHelp(cmd, &help, 100)
		pages.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + strings.TrimRight(help.String(), "\n") + "\n```\n")
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(Program{}.newRoot())
	reference.Page(t, "commands.md", "# Commands\n\nMade from the code by `make reference`; a test fails while it is stale.\n"+index.String()+pages.String())
}
