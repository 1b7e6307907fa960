package cli

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	assert.NotContains(t, []int{ExitOK, ExitFailure, ExitTrouble, ExitNotShown}, ExitUsage, "a script tells a slip from a difference")
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"help", []string{"--help"}, ExitOK},
		{"nothing", []string{}, ExitOK},
		{"success", []string{"version"}, ExitOK},
		{"failure", []string{"run", "--config", missing}, ExitFailure},
		{"failure of check", []string{"config", "check", missing}, ExitFailure},
		{"unknown command", []string{"frobnicate"}, ExitUsage},
		{"unknown command below another", []string{"config", "frobnicate"}, ExitUsage},
		{"unknown flag", []string{"version", "--frob"}, ExitUsage},
		{"missing flag", []string{"run"}, ExitUsage},
		{"bad flag", []string{"healthcheck", "--timeout", "soon"}, ExitUsage},
		{"no relay runs", []string{"sinks", "list", "--data-dir", missing}, ExitFailure},
		{"no relay named", []string{"sinks", "list"}, ExitUsage},
		{"bad time", []string{"deadletters", "list", "--data-dir", missing, "--since", "soon"}, ExitUsage},
		{"days", []string{"silence", "add", "all", "--data-dir", missing, "--for", "7d", "--reason", "x"}, ExitFailure},
		{"no number", []string{"deadletters", "show", "--data-dir", missing}, ExitUsage},
		{"no environment", []string{"credentials", "rotate", "--data-dir", missing, "shop"}, ExitUsage},
		{"no last four", []string{"credentials", "revoke", "--data-dir", missing, "shop/live"}, ExitUsage},
		{"no relay to rotate at", []string{"credentials", "rotate", "--data-dir", missing, "shop/live"}, ExitFailure},
		{"no index", []string{"trail", "show", "--data-dir", missing, "x"}, ExitUsage},
		{"bad severity", []string{"trail", "list", "--data-dir", missing, "--severity", "bad"}, ExitUsage},
		{"bad output", []string{"trail", "list", "--data-dir", missing, "--output", "xml"}, ExitUsage},
		{"no reviewer", []string{"trail", "annotate", "--data-dir", missing, "3"}, ExitUsage},
		{"no relay with a trail", []string{"trail", "list", "--data-dir", missing}, ExitFailure},
		{"times in the wrong order", []string{"settings", "diff", "project", "--data-dir", missing, "--from", "1h", "--to", "2h"}, ExitUsage},
		{"two configurations", []string{"config", "check", missing, missing}, ExitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, Program{}.Execute(t.Context(), c.args, io.Discard, io.Discard))
		})
	}
}

// TestHelpFitsATerminal bounds the lines of each command's text.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long) {
			assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100, "%s: %s", cmd.CommandPath(), line)
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(Program{}.newRoot())
}

// TestAFailedListIsNotEmpty: entries may be there, though the relay cannot be asked.
func TestAFailedListIsNotEmpty(t *testing.T) {
	t.Parallel()
	code, out, stderr := execute(t, "trail", "list", "--data-dir", t.TempDir())
	assert.Equal(t, ExitFailure, code)
	assert.Empty(t, out)
	assert.Contains(t, stderr, "no relay runs on the data directory")
}

// TestEveryConfigFlagHasItsVariable: no command with --config is forgotten.
func TestEveryConfigFlagHasItsVariable(t *testing.T) {
	t.Parallel()
	count := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("config"); flag != nil {
			count++
			assert.Contains(t, flag.Usage, "$"+configVariable, cmd.CommandPath())
			assert.NotNil(t, cmd.PreRunE, cmd.CommandPath())
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(Program{}.newRoot())
	assert.Greater(t, count, 10)
}

func TestFindingsAreOneLine(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a b [31mred é", oneLine("a\nb\x1b[31mred é"))
}
