package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/silences"
)

func newSilence() *cobra.Command {
	cmd := group("silence", "Keep environments from raising alarms, during maintenance", `While a silence of an environment is active, its entries health.changed and health.gap have
"silenced" in their detail, so that a notification can leave them out, and the alert rules
of the environment do not fire. States, events and the audit trail are never hidden. The
audit trail has an entry for each silence that is added, or ended before its time.`)
	cmd.Example = `  auditrelay silence add shop/live --for 2h --reason "upgrade, CHG-17" --config relay.yaml
  auditrelay silence list --config relay.yaml
  auditrelay silence end 3fa9c01b --config relay.yaml`
	cmd.AddCommand(newSilenceAdd(), newSilenceList(), newSilenceEnd())
	return cmd
}

func newSilenceAdd() *cobra.Command {
	var which relayFlags
	var output outputFlag
	var length time.Duration
	var req console.AddSilence
	cmd := &cobra.Command{
		Use:   "add PROJECT/ENVIRONMENT|all --for DURATION --reason TEXT",
		Short: "Silence an environment, or all of them, from now on",
		Long: `Silences an environment, or all of them, from now on, for at most 30 days. It ends by
itself; 'end' ends it earlier. An environment may have several: it is silent until the last
one is over. The audit trail keeps your user name, host and reason.
` + whichRelay + `

Exit codes: 0 added, 1 not added, or the relay cannot be asked, 64 wrong usage.`,
		Example: `  auditrelay silence add shop/live --for 2h --reason "upgrade, CHG-17" --config relay.yaml
  auditrelay silence add all --for 30m --reason "network maintenance" --config relay.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return errors.New("give PROJECT/ENVIRONMENT, or all")
			case length < time.Second:
				return errors.New("give --for, a duration such as 30m, 2h or 7d, of at least a second")
			case req.Reason == "":
				return errors.New("give --reason, such as a ticket: the audit trail keeps it")
			}
			req.For = int64(length.Round(time.Second) / time.Second)
			if args[0] == "all" {
				return nil
			}
			of, err := environmentOf(args[0])
			req.Project, req.Environment = of.Project, of.Environment
			return err
		},
		RunE: which.asks(func(cmd *cobra.Command, _ []string, client *console.Client) error {
			added, err := client.AddSilence(cmd.Context(), req)
			switch {
			case err != nil:
				return err
			case output.value == "json":
				return printJSON(cmd.OutOrStdout(), added)
			}
			return printSilences(cmd.OutOrStdout(), []silences.Silence{added})
		}),
	}
	which.addTo(cmd)
	cmd.Flags().Func("for", "how long: a `DURATION` such as 30m, 2h or 7d", func(text string) (err error) {
		if length, err = lengthOf(text); err != nil {
			err = errors.New("write a number with a unit, such as 30m, 2h or 7d")
		}
		return err
	})
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, as the audit trail will show it: a `TEXT` or a ticket")
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func newSilenceList() *cobra.Command {
	var which relayFlags
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the active silences",
		Long: `Lists the active silences, those of all environments first. 'auditrelay trail list --setting
silences' has the past ones.
` + whichRelay + `

Exit codes: 0 listed, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay silence list --config relay.yaml
  auditrelay silence list --data-dir /var/lib/auditrelay --output json`,
		Args: noArgs,
		RunE: which.asks(func(cmd *cobra.Command, _ []string, client *console.Client) error {
			list, err := client.Silences(cmd.Context())
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), output.value == "json", list, printSilences)
		}),
	}
	which.addTo(cmd)
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func newSilenceEnd() *cobra.Command {
	var which relayFlags
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "end ID",
		Short: "End a silence before its time",
		Long: `Ends a silence now. An environment stays silent while it, or all, has another one. A
held-back alert fires after its usual time. The audit trail keeps your user name and host.
` + whichRelay + `

Exit codes: 0 ended, 1 no such silence is active, or the relay cannot be asked, 64 wrong usage.`,
		Example: `  auditrelay silence end 3fa9c01b --config relay.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: which.asks(func(cmd *cobra.Command, args []string, client *console.Client) error {
			ended, err := client.EndSilence(cmd.Context(), console.EndSilence{ID: args[0]})
			switch {
			case err != nil:
				return err
			case output.value == "json":
				return printJSON(cmd.OutOrStdout(), ended)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the silence %s of %s is ended\n", ended.ID, silencedName(ended))
			return err
		}),
	}
	which.addTo(cmd)
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func printSilences(w io.Writer, list []silences.Silence) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "ID\tENVIRONMENT\tBEGUN\tUNTIL\tBY\tREASON")
	for _, s := range list {
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, silencedName(s), moment(s.Begun), moment(s.Until),
			printable(s.Person.String()), printable(s.Reason))
	}
	return out.Flush()
}

func silencedName(s silences.Silence) string {
	if s.Project == "" {
		return "all"
	}
	return s.Project + "/" + s.Environment
}
