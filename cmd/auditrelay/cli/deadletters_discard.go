package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newDeadlettersDiscard() *cobra.Command {
	var letters letterFlags
	var yes, dryRun bool
	return command(&cobra.Command{
		Use:   "discard",
		Short: "Remove dead letters for good",
		Long: `Removes dead letters for good: their events never reach the sink. Export them
first. It asks before it removes any, except with --yes, and writes their ids into the
audit trail first.

Exit codes: 0 removed, 1 not removed, 64 wrong usage.`,
		Example: `  auditrelay deadletters discard --config relay.yaml --sink old-kafka --dry-run
  auditrelay deadletters discard --config relay.yaml --sink old-kafka --until 720h --yes`,
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request := console.DiscardLetters{Filter: letters.get(), DryRun: true}
		shown := newProgress(cmd.ErrOrStderr())
		if err := client.DiscardLetters(cmd.Context(), request, shown.report); err != nil {
			return err
		}
		shown.end()
		if err := wouldChange(cmd.OutOrStdout(), &shown.last, "discarded"); err != nil || dryRun || shown.last.Total == 0 {
			return err
		}
		if err := confirm(cmd, yes, "Remove them for good?"); err != nil {
			return err
		}
		// Letters since the question are not meant.
		request.DryRun, request.Filter.Through = false, shown.last.Last
		err := client.DiscardLetters(cmd.Context(), request, shown.report)
		shown.end()
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d dead letters discarded\n", shown.last.Removed)
		return err
	}, &letters, yesFlag(&yes), dryRunFlag(&dryRun, "only print the counts"))
}

// confirm asks on the terminal; with yes it need not.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), question)
		return errors.New("nothing was done: give --yes without a terminal to ask at")
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}
