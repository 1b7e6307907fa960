package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/console"

	"github.com/auditrelay/auditrelay/internal/credentials"
)

func newCredentialsList() *cobra.Command {
	var which relayFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accepted push credentials, without their secrets",
		Long: `Lists every credential accepted by the running relay: its own generated ones, and the
static ones of its configuration. LAST FOUR are the last characters of the secret, as
the workspace shows them. LAST USED counts from the relay's start.
` + whichRelay + `

Exit codes: 0 listed, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay credentials list --config relay.yaml
  auditrelay credentials list --data-dir /var/lib/auditrelay --json`,
		Args: noArgs,
		RunE: which.asks(func(cmd *cobra.Command, _ []string, client *console.Client) error {
			list, err := client.Credentials(cmd.Context())
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), asJSON, list, printCredentials)
		}),
	}
	which.addTo(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func printCredentials(w io.Writer, list []credentials.Listed) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "ENVIRONMENT\tKIND\tUSER NAME\tLAST FOUR\tSINCE\tACCEPTED UNTIL\tLAST USED")
	for _, c := range list {
		kind := c.Kind
		if c.State != "" {
			kind += ", " + c.State
		}
		_, _ = fmt.Fprintf(out, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Project, c.Environment, kind,
			cmp.Or(printable(c.Username), "(API key)"), cmp.Or(printable(c.LastFour), "-"), moment(c.Created), moment(c.Until), moment(c.LastUsed))
	}
	return out.Flush()
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
