package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/console"
)

func newCredentialsRevoke() *cobra.Command {
	var which relayFlags
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke PROJECT/ENVIRONMENT LAST_FOUR",
		Short: "Accept a generated credential no more, from now on",
		Long: `Ceases to accept the generated credential of an environment that ends in LAST_FOUR, as
'credentials list' shows it. Where it is the current one, pushes are refused until a new
one is set in the environment's streaming config, which is tried at once. It asks first,
unless --yes is given, and writes into the audit trail before it does so. Static
credentials are removed in the configuration. Write -- before a LAST_FOUR that begins with "-".
` + whichRelay + `

Exit codes: 0 revoked, 1 not revoked, or no new one was set where one was due, 2 wrong usage.`,
		Example: `  auditrelay credentials revoke shop/live wxyz --config relay.yaml
  auditrelay credentials revoke --config relay.yaml --yes -- shop/live -xyz`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := environmentOf(args[0])
			if err != nil {
				return err
			}
			of.LastFour = args[1]
			client, err := which.client()
			if err != nil {
				return &failure{err}
			}
			question := fmt.Sprintf("Accept the credential of %s that ends in %s no more?", args[0], printable(args[1]))
			if err := confirm(cmd, yes, question); err != nil {
				return &failure{err}
			}
			done, err := client.Revoke(cmd.Context(), of)
			if err != nil {
				return &failure{err}
			}
			return reportRevoked(cmd.OutOrStdout(), done, asJSON)
		},
	}
	which.addTo(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func reportRevoked(w io.Writer, done console.Revoked, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(w, done)
	} else {
		_, err = fmt.Fprintf(w, "the credential of %s/%s that ends in %s is accepted no more\n", done.Was.Project, done.Was.Environment, done.Was.LastFour)
		if err == nil && done.Rotated {
			_, err = fmt.Fprintln(w, "a new one is set")
		}
	}
	if done.NotRotated != "" {
		return &failure{fmt.Errorf("no new credential could be set: %s; the relay tries again at its next look", done.NotRotated)}
	}
	return err
}
