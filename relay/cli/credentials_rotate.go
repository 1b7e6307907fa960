package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newRotate is one command at two places: below credentials, and below streaming.
func newRotate(below string) *cobra.Command {
	var which relayFlags
	var asJSON bool
	var reason string
	cmd := &cobra.Command{
		Use:   "rotate PROJECT/ENVIRONMENT",
		Short: "Replace the generated credential of an environment now",
		Long: `Generates a new credential, sets it in the environment's streaming config, and lists the
accepted credentials. The audit trail names you, your host and the --reason. The replaced
one stays valid for streaming.rotation_overlap; 'credentials revoke' ends the old one at
once.
` + whichRelay + `

Exit codes: 0 rotated, 1 not rotated, 64 wrong usage.`,
		Example: "  auditrelay " + below + " rotate shop/live --config relay.yaml --reason CHG-18",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := environmentOf(args[0])
			if err != nil {
				return err
			}
			of.Reason = reason
			client, err := which.client()
			if err != nil {
				return &failure{err}
			}
			list, err := client.Rotate(cmd.Context(), of)
			switch {
			case err != nil:
				return &failure{fmt.Errorf("rotate the credential of %s: %w", args[0], err)}
			case asJSON:
				return printJSON(cmd.OutOrStdout(), list)
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "the credential of %s is rotated\n", args[0])
			return printCredentials(cmd.OutOrStdout(), list)
		},
	}
	which.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, as the audit trail will show it: a `TEXT` or a ticket")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the accepted credentials as a JSON array")
	return cmd
}
