package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func newTrailAnnotate() *cobra.Command {
	var which relayFlags
	var a timeline.Annotation
	cmd := &cobra.Command{
		Use:   "annotate INDEX --reviewer NAME",
		Short: "Mark an entry of the audit trail as reviewed",
		Long: `Adds an entry on the review of another one: its index and the hash of its leaf, the ticket,
a note, and this command's user and host. Nothing is changed: the trail only grows. 'trail
list --unreviewed' leaves the changes without an annotation.
` + whichRelay + `

Exit codes: 0 annotated, 1 there is no such entry, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail annotate 17 --config relay.yaml --reviewer ada --ticket SEC-7 --note "agreed with the product team"`,
		Args:    oneIndex,
		PreRunE: func(*cobra.Command, []string) error { return a.Check() },
		RunE: which.asks(func(cmd *cobra.Command, args []string, client *console.Client) error {
			a.Index, _ = strconv.ParseInt(args[0], 10, 64) // oneIndex has checked it
			done, err := client.Annotate(cmd.Context(), a)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "entry %d is marked as reviewed, by entry %d\n", a.Index, done.Entry)
			return err
		}),
	}
	which.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&a.Reviewer, "reviewer", "", "the reviewer's `NAME`")
	flags.StringVar(&a.Ticket, "ticket", "", "the `TICKET` it belongs to")
	flags.StringVar(&a.Note, "note", "", "a `TEXT` for later readers")
	needFlags(cmd, "reviewer")
	return cmd
}
