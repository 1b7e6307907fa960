package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/routing/match"
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

--match takes a CEL expression over the event as received, with the variables of a sink's
match.cel: `+strings.Join(match.Names(), ", ")+`.
An event that it fails for is delivered.`),
		Example: `  auditrelay replay --config relay.yaml --sink kafka --since 6h --dry-run
  auditrelay replay --config relay.yaml --sink kafka --since 2026-11-03T08:00:00Z --until 2026-11-03T09:30:00Z
  auditrelay replay --config relay.yaml --sink file --since 24h --match 'environment == "production" && type.startsWith("event_log.")'`,
		PreRunE: func(*cobra.Command, []string) error {
			err := checkMatch(request.Match)
			if err == nil && !until.time.IsZero() && !since.time.Before(until.time) {
				err = errors.New("--since must be before --until")
			}
			return err
		},
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request.Since, request.Until = since.time, until.time
		p, err := watched(cmd, client.ReplaySpan, request)
		var unread error
		if p.Missing > 0 || p.Damaged > 0 {
			unread = fmt.Errorf("%d records were trimmed before they could be read, and %d cannot be read", p.Missing, p.Damaged)
		}
		return delivered(cmd.OutOrStdout(), "events", p, request.DryRun, err, unread)
	}, text(&request.Sink, "sink", "the receiving sink's `NAME`"),
		parsed(&since, "since", "the span's begin; "+timeFlagHelp),
		parsed(&until, "until", "the span's end, likewise (default: now)"),
		text(&request.Match, "match", "only events for which the expression `CEL` holds"),
		onOff(&request.DryRun, "dry-run", "only count"), needed{"sink", "since"})
}

// delivered prints the counts, of an interrupted delivery too, and says why a sink did not get all.
// unread is about the unreadable part.
func delivered(w io.Writer, what string, p *console.Progress, dryRun bool, err, unread error) error {
	text := fmt.Sprintf("%d %s: %d delivered, %d refused", p.Matched, what, p.Delivered, p.Refused)
	if dryRun {
		text = fmt.Sprintf("%d %s would be delivered", p.Matched, what)
	}
	if p.Unit != "" {
		if err := say(w, "%s; %d of %d %s read", text, p.Done, p.Total, p.Unit); err != nil {
			return err
		}
	}
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

const (
	barWidth = 24
	// lineEvery is the time between two lines of progress without a terminal.
	lineEvery = 10 * time.Second
)

// progress shows long work: a bar on a terminal, else a line now and then. It keeps
// the newest report for the summary.
type progress struct {
	out      io.Writer
	terminal bool
	last     console.Progress
	failing  string
	notes    int // printed so far
	printed  time.Time
	barred   bool // a bar stands on the terminal's last line
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(fileOf(out)), printed: time.Now()}
}

// watched shows the progress of a relay's work, and returns the last report of it.
func watched[Req any](cmd *cobra.Command, work func(context.Context, Req, func(*console.Progress)) error, req Req) (*console.Progress, error) {
	shown := newProgress(cmd.ErrOrStderr())
	defer shown.end()
	err := work(cmd.Context(), req, shown.report)
	return &shown.last, err
}

// report takes the newest state.
func (p *progress) report(now *console.Progress) {
	p.last = *now
	for ; p.notes < len(now.Notes); p.notes++ {
		p.line("note: " + now.Notes[p.notes])
	}
	if now.Failing != p.failing {
		p.failing = now.Failing
		if p.failing != "" {
			p.line("the sink fails; retrying until it succeeds (Ctrl-C ends): " + p.failing)
		}
	}
	switch {
	case p.terminal:
		p.bar()
	case time.Since(p.printed) >= lineEvery:
		p.line(p.state())
	}
}

// entries reports how many entries of how many are done.
func (p *progress) entries(done, total int64) {
	p.report(&console.Progress{Done: uint64(done), Total: uint64(total), Unit: "entries"})
}

// megabytes reports how many bytes of how many are read.
func (p *progress) megabytes(done, total int64) {
	if now := uint64(done) >> 20; now != p.last.Done {
		p.report(&console.Progress{Done: now, Total: uint64(total) >> 20, Unit: "MB"})
	}
}

func (p *progress) state() string {
	text := fmt.Sprintf("%d of %d %s", p.last.Done, p.last.Total, p.last.Unit)
	if p.last.Delivered > 0 {
		text += fmt.Sprintf(", %d delivered", p.last.Delivered)
	}
	if p.last.Refused > 0 {
		text += fmt.Sprintf(", %d refused", p.last.Refused)
	}
	return text
}

func (p *progress) bar() {
	share := 0.0
	if p.last.Total > 0 {
		share = min(1, float64(p.last.Done)/float64(p.last.Total))
	}
	full := int(share * barWidth)
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K[%s%s] %3.0f%%  %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), 100*share, p.state())
	p.barred = true
}

// line prints a line of its own, above the bar.
func (p *progress) line(text string) {
	p.end()
	_, _ = fmt.Fprintln(p.out, text)
	p.printed = time.Now()
}

// end takes the bar away.
func (p *progress) end() {
	if p.barred {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
		p.barred = false
	}
}
