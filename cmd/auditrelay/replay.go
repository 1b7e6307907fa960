package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/console"
)

func newReplay() *cobra.Command {
	var which relayFlags
	var request console.ReplaySpan
	var since, until timeFlag
	cmd := &cobra.Command{
		Use:   "replay --sink NAME --since TIME",
		Short: "Hand a span of the journal to a sink again",
		Long: `Hands the events that the journal took in within a span of time to one sink again,
with the same ids and in the same order, while live delivery goes on beside it. What
the sink refuses for good goes to the dead letters; any other error is retried until it
passes. It ends with the command: Ctrl-C ends it, and another run begins anew.

The journal keeps what some sink still lacks, and the last journal.replay_window
(by default 72h) beyond that; a span that begins earlier is cut, with a note.

--match takes terms KEY=VALUE joined with commas, all of which must hold. KEY is
type, project, environment, id or subject; in VALUE a * stands for any text.
` + whichRelay + `

Exit codes: 0 all of it is delivered, 1 not all of it is, or failed, 2 wrong usage.`,
		Example: `  auditrelay replay --config relay.yaml --sink kafka --since 6h --dry-run
  auditrelay replay --config relay.yaml --sink kafka --since 2026-11-03T08:00:00Z --until 2026-11-03T09:30:00Z
  auditrelay replay --config relay.yaml --sink file --since 24h --match "environment=production,type=event_log.*"`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			_, err := console.ParseMatch(request.Match)
			if err == nil && !until.time.IsZero() && !since.time.Before(until.time) {
				err = errors.New("--since must be before --until")
			}
			return err
		},
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			client, err := which.client()
			if err != nil {
				return err
			}
			request.Since, request.Until = since.time, until.time
			shown := newProgress(cmd.ErrOrStderr())
			err = client.ReplaySpan(cmd.Context(), request, shown.report)
			shown.end()
			return spanReplayed(cmd.OutOrStdout(), &shown.last, request.DryRun, err)
		}),
	}
	which.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&request.Sink, "sink", "", "the sink `NAME` that gets the events")
	flags.Var(&since, "since", "the span's begin; "+timeFlagHelp)
	flags.Var(&until, "until", "the span's end, likewise (default: now)")
	flags.StringVar(&request.Match, "match", "", "only events that match `EXPR`: type=event_log.*,environment=production")
	flags.BoolVar(&request.DryRun, "dry-run", false, "only count")
	for _, name := range []string{"sink", "since"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that is not there
	}
	return cmd
}

// spanReplayed prints the counts, also those of a replay that was ended.
func spanReplayed(w io.Writer, p *console.Progress, dryRun bool, err error) error {
	if p.Unit != "" {
		text := fmt.Sprintf("%d events: %d delivered, %d refused", p.Matched, p.Delivered, p.Refused)
		if dryRun {
			text = fmt.Sprintf("%d events would be delivered", p.Matched)
		}
		if _, err := fmt.Fprintf(w, "%s; %d of %d records read\n", text, p.Done, p.Total); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; what was delivered stays so")
	case err != nil:
		return err
	case p.Missing > 0 || p.Damaged > 0:
		return fmt.Errorf("%d records were trimmed before they could be read, and %d cannot be read", p.Missing, p.Damaged)
	case p.Refused > 0:
		return errors.New("not all were delivered; 'auditrelay deadletters list' shows the others and why")
	}
	return nil
}
