package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A failure is an error of a well-formed command; cobra's own errors are errors of usage.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errReported ends a command after it has printed the reason of its failure.
var errReported = errors.New("failed, as reported")

// errNotShown ends a command after it has printed its failures; nothing is known to be
// wrong.
var errNotShown = errors.New("not shown, as reported")

// errTrouble ends a command after it has printed a trouble, or a difference.
var errTrouble = errors.New("something is wrong, as reported")

// runs marks the error of run as a failure.
func runs(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := run(cmd, args); err != nil {
			return &failure{err}
		}
		return nil
	}
}

func (p Program) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "auditrelay",
		Short: "Keep a workspace's event log and settings on record, and deliver them",
		Long: `auditrelay receives an environment's event log, stores every event on disk before
it acknowledges it, and delivers it to each sink at its own pace. It also watches the
workspace's settings, and writes each change into an audit trail.

Without --config, the environment variable AUDITRELAY_CONFIG names the configuration, or
else it is /etc/auditrelay/relay.yaml.

Exit codes: 0 success, 1 failure, 64 wrong usage (before any work). status, streaming, routing
try, trail verify and some others have further ones: see their --help.`,
		Example: `  auditrelay config init relay.yaml             # write an example configuration
  auditrelay config check relay.yaml            # name every error in it
  auditrelay sinks check --config relay.yaml    # try each destination
  auditrelay run --config relay.yaml            # run the relay
  auditrelay status --config relay.yaml         # see whether everything flows`,
		Version:       p.build().String(),
		Args:          subcommands,
		RunE:          showHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	showHelpWithin(root)
	root.AddCommand(p.newRun(), p.newConfig(), newDeadletters(), newReplay(), newStatus(), newTap(), p.newRouting(), p.newSinks(), newCredentials(), newStreaming(), newSilence(), newWorkspace(), p.newTrail(), p.newSettings(), p.newJournal(), p.newWitness(), p.newVersion(), newHealthcheck())
	return root
}

// showHelp runs a command with subcommands only.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noArgs refuses arguments: most likely a configuration without its flag.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
	if cmd.Flags().Lookup("config") != nil {
		text += "; name a configuration with --config FILE"
	}
	return errors.New(text)
}

// subcommands refuses unknown subcommands of cmd, and suggests one.
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
