package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

func newStreamingApply() *cobra.Command {
	var which relayFlags
	output := forms("table", "json")
	var yes bool
	var reason string
	var of console.OfEnvironment
	cmd := &cobra.Command{
		Use:   "apply PROJECT/ENVIRONMENT",
		Short: "Set the desired streaming config of an environment now",
		Long: `Shows the plan, asks, and sets the desired streaming config once, also in mode observe
and where nothing seems to differ: so a secret changed by hand to one with the same last
four characters is replaced. A relay as the destination gets a new credential. The audit
trail gets an entry before and one after it, with your user name, host and --reason.
Without a question (--yes) it wants the reason.
` + whichRelay + `

Exit codes: 0 set, 1 not set or of unknown outcome, 2 set and still not as desired, as
reported: not enabled, for example; 64 wrong usage.`,
		Example: `  auditrelay streaming apply shop/live --config relay.yaml
  auditrelay streaming apply shop/live --config relay.yaml --yes --reason CHG-17`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return errors.New("give PROJECT/ENVIRONMENT")
			}
			of, err = environmentOf(args[0])
			of.Reason = reason
			return err
		},
		PreRunE: func(*cobra.Command, []string) error {
			if yes && strings.TrimSpace(reason) == "" {
				return errors.New("--yes needs --reason: nobody else says why in the audit trail")
			}
			return nil
		},
		RunE: which.asks(func(cmd *cobra.Command, _ []string, client *console.Client) error {
			if err := askToApply(cmd, client, of, yes); err != nil {
				return err
			}
			done, err := client.ApplyStreaming(cmd.Context(), of)
			if err != nil {
				return err
			}
			return applied(cmd, done, output.value)
		}),
	}
	which.addTo(cmd)
	addYes(cmd, &yes)
	addReason(cmd, &reason)
	output.addTo(cmd)
	return cmd
}

// askToApply shows the plan on standard error, and asks.
func askToApply(cmd *cobra.Command, client *console.Client, of console.OfEnvironment, yes bool) error {
	question := "Set it?"
	err := client.PlanStreaming(cmd.Context(), of, func(p console.Planned) error {
		if p.Preview == nil {
			return errors.New(p.Error)
		}
		if !p.Preview.Differs {
			question = "Nothing seems to differ. Set it all the same?"
		}
		return printPreview(cmd.ErrOrStderr(), *p.Preview)
	})
	if err != nil {
		return err
	}
	return confirm(cmd, yes, question)
}

// applied prints the state afterwards.
func applied(cmd *cobra.Command, done streaming.Preview, form string) (err error) {
	if form == "json" {
		err = printJSON(cmd.OutOrStdout(), done)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the streaming config of %s/%s is set\n", done.Project, done.Environment)
		if err == nil {
			err = printPreview(cmd.OutOrStdout(), done)
		}
	}
	if err == nil && (done.Differs || done.Finding != streaming.FindingNone) {
		return errTrouble
	}
	return err
}
