package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

func newStreamingApply() *cobra.Command {
	output := forms("table", "json")
	var consent consentFlags
	var of console.OfEnvironment
	return command(&cobra.Command{
		Use:   "apply PROJECT/ENVIRONMENT",
		Short: "Set the desired streaming config of an environment now",
		Long: `Shows the plan, asks, and sets the desired streaming config once, also in mode observe
and where nothing seems to differ: so a secret changed by hand to one with the same last
four characters is replaced. A relay as the destination gets a new credential. The audit
trail gets an entry before and one after it, with your user name, host and --reason.
Without a question (--yes) it wants the reason.

Exit codes: 0 set, 1 not set or of unknown outcome, 2 set and still not as desired, as
reported: not enabled, for example; 64 wrong usage.`,
		Example: `  auditrelay streaming apply shop/live --config relay.yaml
  auditrelay streaming apply shop/live --config relay.yaml --yes --reason CHG-17`,
		Args: ofEnvironment(&of, exactly(1, "PROJECT/ENVIRONMENT")),
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		of.Reason = consent.reason
		if err := askToApply(cmd, client, of, consent.yes); err != nil {
			return err
		}
		done, err := client.ApplyStreaming(cmd.Context(), of)
		if err != nil {
			return err
		}
		return applied(cmd, done, output.value)
	}, &consent, &output)
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
