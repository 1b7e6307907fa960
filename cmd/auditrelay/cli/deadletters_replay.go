package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newDeadlettersReplay() *cobra.Command {
	var letters letterFlags
	var to string
	var dryRun bool
	return command(&cobra.Command{
		Use:   "replay",
		Short: "Deliver dead letters again",
		Long: `Delivers dead letters again, to their own sink or to another one, while live delivery goes on. It
removes a letter after the sink has acknowledged its event. A letter refused again stays,
with its new reason, a new number and all attempts counted. It leaves later letters alone.
Passing errors are retried until they pass. Ctrl-C ends the command; undelivered letters
stay. The receiving sink's match and redact sections apply, as in live delivery.

Exit codes: 0 all are delivered, 1 not all are, or failed, 64 wrong usage.`,
		Example: `  auditrelay deadletters replay --config relay.yaml --sink kafka --dry-run
  auditrelay deadletters replay --config relay.yaml --sink kafka --reason "too large"
  auditrelay deadletters replay --config relay.yaml --sink old-kafka --to kafka`,
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		shown := newProgress(cmd.ErrOrStderr())
		err := client.ReplayLetters(cmd.Context(), console.ReplayLetters{Filter: letters.get(), To: to, DryRun: dryRun}, shown.report)
		shown.end()
		if err == nil && dryRun {
			return wouldChange(cmd.OutOrStdout(), &shown.last, "replayed")
		}
		return lettersReplayed(cmd.OutOrStdout(), &shown.last, err)
	}, &letters, flagFunc(func(flags *pflag.FlagSet) {
		flags.StringVar(&to, "to", "", "deliver to the sink `NAME` instead of their own")
		flags.BoolVar(&dryRun, "dry-run", false, "only print the counts")
	}))
}

// wouldChange prints the result of a dry run.
func wouldChange(w io.Writer, p *console.Progress, what string) error {
	if _, err := fmt.Fprintf(w, "%d dead letters would be %s\n", p.Total, what); err != nil {
		return err
	}
	for _, sink := range slices.Sorted(maps.Keys(p.Sinks)) {
		_, _ = fmt.Fprintf(w, "  %s: %d\n", sink, p.Sinks[sink])
	}
	return nil
}

// lettersReplayed prints the counts, of an interrupted replay too.
func lettersReplayed(w io.Writer, p *console.Progress, err error) error {
	if p.Unit != "" {
		if _, err := fmt.Fprintf(w, "%d dead letters: %d delivered, %d refused again, %d gone meanwhile, %d unreadable\n",
			p.Total, p.Delivered, p.Refused, p.Missing, p.Damaged); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; undelivered letters stay among the dead letters")
	case err != nil:
		return err
	case p.Refused > 0 || p.Damaged > 0:
		return errors.New("not all were delivered; 'deadletters list' shows the others and why")
	}
	return nil
}
