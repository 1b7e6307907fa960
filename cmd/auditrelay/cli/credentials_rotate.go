package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// newRotate is one command at two places: below credentials, and below streaming.
func newRotate(below string) *cobra.Command {
	var of console.OfEnvironment
	cmd := question(&cobra.Command{
		Use:   "rotate PROJECT/ENVIRONMENT",
		Short: "Replace the generated credential of an environment now",
		Long: `Generates a new credential, sets it in the environment's streaming config, and lists the
accepted credentials. The audit trail names you, your host and the --reason. The replaced
one stays valid for streaming.rotation_overlap; 'credentials revoke' ends the old one at
once.

Exit codes: 0 rotated, 1 not rotated, 64 wrong usage.`,
		Example: "  auditrelay " + below + " rotate shop/live --config relay.yaml --reason CHG-18",
		Args:    ofEnvironment(&of, cobra.ExactArgs(1)),
	}, &relayFlags{}, orJSON("print the accepted credentials as a JSON array"), func(cmd *cobra.Command, client *console.Client, args []string) ([]credentials.Listed, error) {
		list, err := client.Rotate(cmd.Context(), of)
		if err != nil {
			err = fmt.Errorf("rotate the credential of %s: %w", args[0], err)
		}
		return list, err
	}, func(w io.Writer, list []credentials.Listed) error {
		_, _ = fmt.Fprintf(w, "the credential of %s/%s is rotated\n", of.Project, of.Environment)
		return printCredentials(w, list)
	})
	reasonFlag(&of.Reason).addTo(cmd)
	return cmd
}
