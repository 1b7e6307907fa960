package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
)

func newJournalAccept() *cobra.Command {
	var yes bool
	return command(&cobra.Command{
		Use:   "accept-damage",
		Short: "Let the sinks of a running relay pass over damaged records",
		Long: `When more than ten records of the journal are damaged, or more than 1 in 100, the sinks
wait before the damage: so much is seldom chance, and a backup or another version of
auditrelay may still restore the records. The relay takes pushes meanwhile. This
command lets the sinks go on without the damaged records. The quarantine names each, and
the audit trail records the decision. It asks first, except with --yes.

Exit codes: 0 accepted, 1 not accepted, 64 wrong usage.`,
		Example: `  auditrelay journal accept-damage --config relay.yaml`,
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		d, err := client.Damage(cmd.Context())
		if err != nil {
			return err
		}
		if d.Records == 0 {
			return quarantine.ErrNoDamage
		}
		question := fmt.Sprintf("%d records are damaged or lost, from position %d on; %d can be read. Let the sinks go on without them?", d.Records, d.First, d.Readable)
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		was, err := client.AcceptDamage(cmd.Context())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "accepted: the sinks pass over %d damaged records; the quarantine names each\n", was.Records)
		return err
	}, yesFlag(&yes))
}
