package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newSinksRetire() *cobra.Command {
	var yes bool
	return command(&cobra.Command{
		Use:   "retire NAME",
		Short: "Give up the events kept for a sink no longer configured",
		Long: `Removes the position of a sink no longer in the running relay's configuration. The journal
then stops keeping events for it: it trims them once all other sinks have them and the
replay window has passed. The sink's dead letters stay. A new sink of the same name starts
at the oldest stored event. It asks first, except with --yes.

It works only while the relay runs.

Exit codes: 0 retired, 1 not retired, 64 wrong usage.`,
		Example: `  auditrelay sinks retire old-kafka --config relay.yaml`,
		Args:    exactly(1, "the NAME of one sink, as 'auditrelay sinks list' shows it"),
	}, &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
		question, err := retirement(cmd, client, args[0])
		if err != nil {
			return err
		}
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		was, err := client.Retire(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "sink %s is retired: the journal no longer keeps %d records for it; its %d dead letters stay\n",
			was.Name, was.Position.Pending, was.DeadLetters)
		return err
	}, yesFlag(&yes))
}

// retirement is the question before a sink is retired. The relay decides whether it
// may be.
func retirement(cmd *cobra.Command, client *console.Client, name string) (string, error) {
	list, err := client.Sinks(cmd.Context())
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.Name == name && s.Position != nil && !s.Configured {
			return fmt.Sprintf("Sink %s lacks %d records, and will never get them. Let them go?", name, s.Position.Pending), nil
		}
	}
	return fmt.Sprintf("Retire sink %s?", name), nil
}
