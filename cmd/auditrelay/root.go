package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A failure is an error of a command that was understood; what cobra itself
// returns is an error of usage.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errReported ends a command that has already said why it failed.
var errReported = errors.New("failed, as reported")

// runs marks what run returns as a failure.
func runs(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := run(cmd, args); err != nil {
			return &failure{err}
		}
		return nil
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "auditrelay",
		Short: "Keep a workspace's event log and settings on record, and deliver them",
		Long: `auditrelay takes an environment's event log, keeps every event on disk before it
acknowledges it, and delivers it to each sink at its own pace. Beside the stream
it watches the workspace's settings and writes each change into an audit trail.

Where --config is not given, AUDITRELAY_CONFIG names the configuration.

Exit codes: 0 success, 1 failure, 2 wrong usage.`,
		Example: `  auditrelay config init relay.yaml
  auditrelay config check relay.yaml
  auditrelay run --config relay.yaml`,
		Version:       thisBuild().String(),
		Args:          subcommands,
		RunE:          showHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newRun(), newConfig(), newDeadletters(), newReplay(), newSinks(), newCredentials(), newJournal(), newVersion(), newHealthcheck())
	return root
}

// showHelp is what a command does that only has others below it.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// subcommands refuses what is no command below cmd, and suggests one.
func subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 3
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return errors.New(text)
}
