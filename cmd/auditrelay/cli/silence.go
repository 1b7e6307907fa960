package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
)

func newSilence() *cobra.Command {
	return under(&cobra.Command{
		Use:   "silence",
		Short: "Keep environments from raising alarms, during maintenance",
		Long: `While a silence of an environment is active, its entries health.changed and health.gap have
"silenced" in their detail, so that a notification can leave them out, and the alert rules
of the environment do not fire. States, events and the audit trail are never hidden. The
audit trail has an entry for each silence that is added, or ended before its time.`,
		Example: `  auditrelay silence add shop/live --for 2h --reason "upgrade, CHG-17" --config relay.yaml
  auditrelay silence list --config relay.yaml
  auditrelay silence end 3fa9c01b --config relay.yaml`,
	}, newSilenceAdd(), newSilenceList(), newSilenceEnd())
}

func newSilenceAdd() *cobra.Command {
	var length time.Duration
	var req console.AddSilence
	return withFlags(question(&cobra.Command{
		Use:   "add PROJECT/ENVIRONMENT|all --for DURATION --reason TEXT",
		Short: "Silence an environment, or all of them, from now on",
		Long: exits("0 added, 1 not added, or the relay cannot be asked", `Silences an environment, or all of them, from now on, for at most 30 days. It ends by
itself; 'end' ends it earlier. An environment may have several: it is silent until the last
one is over. The audit trail keeps your user name, host and reason.`),
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
	}, &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, _ []string) (health.Silence, error) {
		return client.AddSilence(cmd.Context(), req)
	}, func(p *page, added health.Silence) { printSilences(p, []health.Silence{added}) }), reasonFlag(&req.Reason), flagFunc(func(flags *pflag.FlagSet) {
		flags.Func("for", "how long: a `DURATION` such as 30m, 2h or 7d", func(text string) (err error) {
			if length, err = lengthOf(text); err != nil {
				err = errors.New("write a number with a unit, such as 30m, 2h or 7d")
			}
			return err
		})
	}))
}

func newSilenceList() *cobra.Command {
	return question(&cobra.Command{
		Use:   "list",
		Short: "List the active silences",
		Long: exits("0 listed, 1 failed", `Lists the active silences, those of all environments first. 'auditrelay trail list --setting
silences' has the past ones.`),
		Example: `  auditrelay silence list --config relay.yaml
  auditrelay silence list --data-dir /var/lib/auditrelay --output json`,
	}, &relayFlags{}, forms("table", "json"), listOf((*console.Client).Silences), printSilences)
}

func newSilenceEnd() *cobra.Command {
	return question(&cobra.Command{
		Use:   "end ID",
		Short: "End a silence before its time",
		Long: exits("0 ended, 1 no such silence is active, or the relay cannot be asked", `Ends a silence now. An environment stays silent while it, or all, has another one. A
held-back alert fires after its usual time. The audit trail keeps your user name and host.`),
		Example: `  auditrelay silence end 3fa9c01b --config relay.yaml`,
		Args:    cobra.ExactArgs(1),
	}, &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, args []string) (health.Silence, error) {
		return client.EndSilence(cmd.Context(), console.EndSilence{ID: args[0]})
	}, func(p *page, ended health.Silence) {
		p.line("the silence %s of %s is ended", ended.ID, silencedName(ended))
	})
}

func printSilences(p *page, list []health.Silence) {
	p.row("ID", "ENVIRONMENT", "BEGUN", "UNTIL", "BY", "REASON")
	for _, s := range list {
		p.row(s.ID, silencedName(s), moment(s.Begun), moment(s.Until), printable(s.Person.String()), printable(s.Reason))
	}
}

func silencedName(s health.Silence) string {
	if s.Project == "" {
		return "all"
	}
	return s.Project + "/" + s.Environment
}
