package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// errReported ends a command after it has printed the reason of its failure.
var errReported = errors.New("failed, as reported")

// errNotShown ends a command after it has printed its failures; nothing is known to be
// wrong.
var errNotShown = errors.New("not shown, as reported")

// errTrouble ends a command after it has printed a trouble, or a difference.
var errTrouble = errors.New("something is wrong, as reported")

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
	root.AddCommand(
		p.newRun(),
		group("config", "Write an example configuration, or check your own", "", newConfigInit(), p.newConfigCheck()),
		newDeadletters(), newReplay(), newStatus(), newTap(),
		group("routing", "Try a sink's match and redact", "", p.newRoutingTry()),
		group("sinks", "Check the sinks, list their lag, or retire one", "", p.newSinksCheck(), newSinksList(), newSinksRetire()),
		group("credentials", "List, rotate and revoke the push credentials of a running relay", "", newCredentialsList(), newRotate("credentials"), newCredentialsRevoke()),
		newStreaming(), newSilence(), newWorkspace(), p.newTrail(), p.newSettings(), p.newJournal(), p.newWitness(), p.newVersion(), newHealthcheck(),
	)
	markFailures(root)
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
