package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newReplay() *cobra.Command {
	var request console.ReplaySpan
	var since, until timeFlag
	return command(&cobra.Command{
		Use:   "replay --sink NAME --since TIME",
		Short: "Deliver a span of the journal to a sink again",
		Long: exits("0 all of it is delivered, 1 not all of it is, or failed", `Delivers the events of a span of time to one sink again, with the same ids and in the
same order, while live delivery goes on. The span counts from the events' arrival in the
journal. Events refused for good go to the dead letters; any other error is retried until
it passes. Ctrl-C ends the replay; another run begins from the start.

The journal keeps undelivered events, and delivered ones for journal.replay_window (72h by
default) as far as its disk budget allows. An earlier begin is cut, with a note.

--match takes terms KEY=VALUE joined with commas; all must hold. KEY is type, project,
environment, id or subject; in VALUE a * stands for any text.`),
		Example: `  auditrelay replay --config relay.yaml --sink kafka --since 6h --dry-run
  auditrelay replay --config relay.yaml --sink kafka --since 2026-11-03T08:00:00Z --until 2026-11-03T09:30:00Z
  auditrelay replay --config relay.yaml --sink file --since 24h --match "environment=production,type=event_log.*"`,
		PreRunE: func(*cobra.Command, []string) error {
			_, err := console.ParseMatch(request.Match)
			if err == nil && !until.time.IsZero() && !since.time.Before(until.time) {
				err = errors.New("--since must be before --until")
			}
			return err
		},
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request.Since, request.Until = since.time, until.time
		p, err := watched(cmd, client.ReplaySpan, request)
		return spanReplayed(cmd.OutOrStdout(), p, request.DryRun, err)
	}, text(&request.Sink, "sink", "the receiving sink's `NAME`"),
		parsed(&since, "since", "the span's begin; "+timeFlagHelp),
		parsed(&until, "until", "the span's end, likewise (default: now)"),
		text(&request.Match, "match", "only events matching `EXPR`: type=event_log.*,environment=production"),
		onOff(&request.DryRun, "dry-run", "only count"), needed{"sink", "since"})
}

// spanReplayed prints the counts, of an interrupted replay too.
func spanReplayed(w io.Writer, p *console.Progress, dryRun bool, err error) error {
	if p.Unit != "" {
		if err := say(w, "%s; %d of %d records read", deliveredText("events", p, dryRun), p.Done, p.Total); err != nil {
			return err
		}
	}
	var unread error
	if p.Missing > 0 || p.Damaged > 0 {
		unread = fmt.Errorf("%d records were trimmed before they could be read, and %d cannot be read", p.Missing, p.Damaged)
	}
	return undelivered(p, err, unread)
}

func deliveredText(what string, p *console.Progress, dryRun bool) string {
	if dryRun {
		return fmt.Sprintf("%d %s would be delivered", p.Matched, what)
	}
	return fmt.Sprintf("%d %s: %d delivered, %d refused", p.Matched, what, p.Delivered, p.Refused)
}

// undelivered says why a sink did not get all; nil if it did. unread is about the
// unreadable part.
func undelivered(p *console.Progress, err, unread error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; delivered events stay delivered")
	case err != nil:
		return err
	case unread != nil:
		return unread
	case p.Refused > 0:
		return errors.New("not all were delivered; 'auditrelay deadletters list' shows the others and why")
	}
	return nil
}
