package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"help", []string{"--help"}, exitOK},
		{"nothing", []string{}, exitOK},
		{"success", []string{"version"}, exitOK},
		{"failure", []string{"run", "--config", missing}, exitFailure},
		{"failure of check", []string{"config", "check", missing}, exitFailure},
		{"unknown command", []string{"frobnicate"}, exitUsage},
		{"unknown command below another", []string{"config", "frobnicate"}, exitUsage},
		{"unknown flag", []string{"version", "--frob"}, exitUsage},
		{"missing flag", []string{"run"}, exitUsage},
		{"bad flag", []string{"healthcheck", "--timeout", "soon"}, exitUsage},
		{"no relay runs", []string{"sinks", "list", "--data-dir", missing}, exitFailure},
		{"no relay named", []string{"sinks", "list"}, exitUsage},
		{"bad time", []string{"deadletters", "list", "--data-dir", missing, "--since", "soon"}, exitUsage},
		{"no number", []string{"deadletters", "show", "--data-dir", missing}, exitUsage},
		{"no environment", []string{"credentials", "rotate", "--data-dir", missing, "shop"}, exitUsage},
		{"no last four", []string{"credentials", "revoke", "--data-dir", missing, "shop/live"}, exitUsage},
		{"no relay to rotate at", []string{"credentials", "rotate", "--data-dir", missing, "shop/live"}, exitFailure},
		{"two configurations", []string{"config", "check", missing, missing}, exitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, execute(t.Context(), c.args, io.Discard, io.Discard))
		})
	}
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
	walk(newRoot())
	assert.Greater(t, count, 10)
}
