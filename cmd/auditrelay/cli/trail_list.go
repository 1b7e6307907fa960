package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newTrailList() *cobra.Command {
	chosen := entryFlags{limit: 50}
	output := forms("table", "json", "csv")
	var follow, all bool
	return command("trail list", p.trail(), func(cmd *cobra.Command, _ []string, source trailSource) error {
		if !all && chosen.filter.Type == "" && chosen.filter.Setting == "" {
			chosen.filter.Without = eventproof.Type
		}
		return listEntries(cmd, source, chosen.filter, output.value, follow)
	}, &chosen, &output, onOff(&all, "all", "also digests of the event stream (events.span)"), flagFunc(func(flags *pflag.FlagSet) {
		flags.BoolVarP(&follow, "follow", "f", false, "go on with new entries")
	}))
}

func listEntries(cmd *cobra.Command, source trailSource, filter timeline.Filter, form string, follow bool) error {
	list := rowsTo(cmd.OutOrStdout(), form, follow)
	if form == "csv" {
		// A row does not have all columns. Without --follow all entries come in one pass.
		entries := timeline.CSV(list.out)
		if !follow {
			return errors.Join(source.Entries(cmd.Context(), filter, entries), list.end())
		}
		list.print = func(r timeline.Row) error {
			return source.Entries(cmd.Context(), timeline.Filter{Index: &r.Index}, entries)
		}
	}
	if follow {
		f := follower{source: source, list: list, told: cmd.ErrOrStderr()}
		return errors.Join(f.run(cmd.Context(), filter), list.end())
	}
	err := source.List(cmd.Context(), console.ListTrail{Filter: filter}, list.add)
	if err != nil {
		list.empty = "" // entries may be there
	}
	return errors.Join(err, list.end())
}

// rowList prints rows as they come.
type rowList struct {
	out    *bufio.Writer
	print  func(timeline.Row) error
	empty  string // printed for no rows
	follow bool
	rows   int
}

func rowsTo(w io.Writer, form string, follow bool) *rowList {
	l := &rowList{out: bufio.NewWriterSize(w, 32<<10), follow: follow}
	switch form {
	case "json":
		l.print = func(r timeline.Row) error { return encodeLine(l.out, r) }
	case "csv": // see csvEntries
	default:
		l.print = l.line
		l.empty = "no entries\n"
	}
	return l
}

// add prints a row. The first one, and new ones, wait for nothing.
func (l *rowList) add(r timeline.Row) error {
	l.rows++
	if err := l.print(r); err != nil {
		return err
	}
	if l.follow || l.rows == 1 {
		return l.out.Flush()
	}
	return nil
}

func (l *rowList) end() error {
	if l.rows == 0 && !l.follow {
		_, _ = l.out.WriteString(l.empty)
	}
	return l.out.Flush()
}

// line prints a row of the table. Its columns are fixed, as rows come one by one: a longer
// name is cut in its middle.
func (l *rowList) line(r timeline.Row) error {
	const columns, widest = "%8s  %-20s  %-8s  %-9s  %-24s  %-24s  %-24s  %-8s  %s\n", 24
	if l.rows == 1 {
		_, _ = fmt.Fprintf(l.out, columns, "INDEX", "TIME", "SEVERITY", "DIRECTION", "ENVIRONMENT", "SETTING", "WHO", "REVIEWED", "WHAT")
	}
	name := func(text string) string { return cut(cmp.Or(printable(text), "-"), widest) }
	reviewed := "-"
	if r.Reviewed {
		reviewed = "yes"
	}
	_, err := fmt.Fprintf(l.out, columns, strconv.FormatInt(r.Index, 10), moment(r.Time), cmp.Or(r.Severity, "-"), cmp.Or(r.Direction, "-"),
		name(placeOf(r.Project, r.Environment)), name(r.Setting), name(r.Who()), reviewed, printable(r.Summary))
	return err
}

func placeOf(project, environment string) string {
	return strings.TrimSuffix(project+"/"+environment, "/")
}

const (
	// firstPause is the wait after the relay is lost; it doubles up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// follower lists entries as they come, also across absences of the relay or its cluster.
type follower struct {
	source trailSource
	list   *rowList
	told   io.Writer // of absences: one line at the beginning of each, and one at the end

	next    *int64        // the first entry not listed yet; nil before the first answer
	pause   time.Duration // before the next attempt; 0: the relay is not away
	printed error         // of the list
}

// run follows until ctx ends, or the rows cannot be printed. Without any answer of the
// relay, it is an error.
func (f *follower) run(ctx context.Context, filter timeline.Filter) error {
	for ctx.Err() == nil {
		err := f.source.List(ctx, console.ListTrail{Filter: filter, Follow: true, From: f.next, Following: f.following}, f.row)
		switch {
		case f.printed != nil:
			return f.printed
		case ctx.Err() != nil: // the end
		case f.next == nil:
			return err
		default:
			f.lost(err)
			_ = retry.Sleep(ctx, f.pause) // the end of ctx ends the loop too
		}
	}
	return nil
}

func (f *follower) row(r timeline.Row) error {
	if f.printed = f.list.add(r); f.printed != nil {
		return f.printed
	}
	f.next = new(r.Index + 1)
	return nil
}

// following begins or goes on.
func (f *follower) following(next int64) {
	if f.next = &next; f.pause > 0 {
		f.pause = 0
		_, _ = fmt.Fprintln(f.told, "the relay answers again")
	}
}

func (f *follower) lost(err error) {
	if f.pause == 0 {
		if err == nil {
			err = errors.New("it ended its answer")
		}
		_, _ = fmt.Fprintln(f.told, "the relay cannot be followed; trying again until it can (Ctrl-C ends): "+printable(err.Error()))
	}
	f.pause = min(max(firstPause, 2*f.pause), longestPause)
}
