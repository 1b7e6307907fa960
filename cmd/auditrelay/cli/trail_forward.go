package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newTrailForward() *cobra.Command {
	var which relayFlags
	var chosen entryFlags
	var request console.ForwardTrail
	cmd := &cobra.Command{
		Use:   "forward --sink NAME --since TIME",
		Short: "Deliver old entries of the audit trail to a sink",
		Long: `Delivers entries of the audit trail to one sink, the oldest first, while live delivery goes on: for
a new SIEM, or after a loss there. Unlike 'auditrelay replay' it reads the trail itself: the
trail keeps every entry for ever. The events and their ids are those of the first time, so a
destination can recognise a repetition.

Events refused for good go to the dead letters; any other error is retried until it passes.
Ctrl-C ends it; another run begins from the start.
` + whichRelay + `

Exit codes: 0 all of it is delivered, 1 not all of it is, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail forward --config relay.yaml --sink siem --since 2026-01-01 --dry-run
  auditrelay trail forward --config relay.yaml --sink siem --since 2026-01-01 --severity medium`,
		Args: noArgs,
		RunE: which.asks(func(cmd *cobra.Command, _ []string, client *console.Client) error {
			request.Filter = chosen.filter
			shown := newProgress(cmd.ErrOrStderr())
			err := client.ForwardTrail(cmd.Context(), request, shown.report)
			shown.end()
			return trailForwarded(cmd.OutOrStdout(), &shown.last, request.DryRun, err)
		}),
	}
	which.addTo(cmd)
	chosen.addTo(cmd, 0)
	cmd.Flags().StringVar(&request.Sink, "sink", "", "the receiving sink's `NAME`")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "only count")
	needFlags(cmd, "sink", "since")
	return cmd
}

// trailForwarded prints the counts, of an interrupted run too.
func trailForwarded(w io.Writer, p *console.Progress, dryRun bool, err error) error {
	if p.Unit != "" {
		text := fmt.Sprintf("%d entries: %d delivered, %d refused", p.Matched, p.Delivered, p.Refused)
		if dryRun {
			text = fmt.Sprintf("%d entries would be delivered", p.Matched)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	var unread error
	if p.Damaged > 0 {
		unread = fmt.Errorf("%d entries cannot be read; 'auditrelay journal verify' names them", p.Damaged)
	}
	return undelivered(p, err, unread)
}
