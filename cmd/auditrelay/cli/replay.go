package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newReplay() *cobra.Command {
	var request console.ReplaySpan
	var since, until timeFlag
	return command("replay", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
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
		onOff(&request.DryRun, "dry-run", "only count"), needed{"sink", "since"}, check(func() error {
			err := checkMatch(request.Match)
			if err == nil && !until.time.IsZero() && !since.time.Before(until.time) {
				err = errors.New("--since must be before --until")
			}
			return err
		}))
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
	return notAll(p, cmp.Or(err, unread), "delivered events stay delivered")
}

// notAll says why not everything was delivered. Whoever interrupts it learns what became of the rest.
func notAll(p *console.Progress, err error, interrupted string) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; " + interrupted)
	case err != nil:
		return err
	case p.Refused > 0 || p.Damaged > 0:
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
