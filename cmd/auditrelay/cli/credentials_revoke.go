package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newCredentialsRevoke() *cobra.Command {
	var yes bool
	var of console.OfEnvironment
	output := orJSON("print a JSON object")
	return command(&cobra.Command{
		Use:   "revoke PROJECT/ENVIRONMENT LAST_FOUR",
		Short: "Reject a generated credential from now on",
		Long: `Rejects the generated credential of an environment from now on. LAST_FOUR are its last
characters, as 'credentials list' shows them; write -- before a LAST_FOUR with a leading
"-". If it was the current one, the relay sets a new one in the environment's streaming
config at once, and refuses pushes until then. It asks first, except with --yes, and writes an
audit trail entry before it acts, with your user name, host and --reason. Remove static
credentials in the configuration.

Exit codes: 0 revoked, 1 not revoked, or no new one was set where one was due, 64 wrong usage.`,
		Example: `  auditrelay credentials revoke shop/live wxyz --config relay.yaml --reason "leaked in CHG-18"
  auditrelay credentials revoke --config relay.yaml --yes -- shop/live -xyz`,
		Args: ofEnvironment(&of, cobra.ExactArgs(2)),
	}, &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
		of.LastFour = args[1]
		question := fmt.Sprintf("Reject the credential of %s ending in %s from now on?", args[0], printable(args[1]))
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		done, err := client.Revoke(cmd.Context(), of)
		if err != nil {
			return err
		}
		return reportRevoked(cmd.OutOrStdout(), done, output.isJSON())
	}, yesFlag(&yes), reasonFlag(&of.Reason), &output)
}

func reportRevoked(w io.Writer, done console.Revoked, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(w, done)
	} else {
		_, err = fmt.Fprintf(w, "the credential of %s/%s ending in %s is revoked\n", done.Was.Project, done.Was.Environment, done.Was.LastFour)
		if err == nil && done.Rotated {
			_, err = fmt.Fprintln(w, "a new one is set")
		}
	}
	if done.NotRotated != "" {
		return fmt.Errorf("no new credential was set: %s", done.NotRotated)
	}
	return err
}
