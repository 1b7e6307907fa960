package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newTrailList() *cobra.Command {
	which := p.trail()
	var chosen entryFlags
	output := forms("table", "json", "csv")
	var follow, all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entries of the audit trail, the newest last",
		Long: `Lists entries of the audit trail, the newest last, a line each: without --limit the newest
50 fitting all given flags. --follow goes on with new ones until Ctrl-C, also after the
relay, or its cluster, was away: each entry comes once. --unreviewed leaves the changes not
marked by 'trail annotate'; first looks, checks and repeated states need no review. The
digests of the event stream (events.span), one for each interval, are listed with --all,
--type or --setting only.

WHO is "relay", USER@HOST of a person who acted through the relay, or "outside": the API
names nobody. What a command claims of its person (before sudo, for example) is marked as
a claim. --output csv has the window of the change and the states before and after, too.
` + whichTrail + `

Exit codes: 0 listed (none is fine), 1 failed, 64 wrong usage.`,
		Example: `  auditrelay trail list --config relay.yaml
  auditrelay trail list --config relay.yaml --severity high --direction weaker --since 2026-03-01
  auditrelay trail list --config relay.yaml --unreviewed --limit 0 --output csv > review.csv
  auditrelay trail list --config relay.yaml --actor ada --since 2026-03-01
  auditrelay trail list --config relay.yaml --all --limit 200
  auditrelay trail list --config relay.yaml --follow --output json | jq -r .summary`,
		Args: noArgs,
		RunE: which.asks(func(cmd *cobra.Command, _ []string, source trailSource) error {
			if !all && chosen.filter.Type == "" && chosen.filter.Setting == "" {
				chosen.filter.Without = eventproof.Type
			}
			list := rowsTo(cmd.OutOrStdout(), output.value, follow)
			if output.value == "csv" {
				// A row does not have all columns. Without --follow all entries come in one pass.
				entries := csvEntries(list.out)
				if !follow {
					return errors.Join(source.Entries(cmd.Context(), chosen.filter, entries), list.end())
				}
				list.print = func(r timeline.Row) error {
					return source.Entries(cmd.Context(), timeline.Filter{Index: &r.Index}, entries)
				}
			}
			if follow {
				f := follower{source: source, list: list, told: cmd.ErrOrStderr()}
				return errors.Join(f.run(cmd.Context(), chosen.filter), list.end())
			}
			err := source.List(cmd.Context(), console.ListTrail{Filter: chosen.filter}, list.add)
			if err != nil {
				list.empty = "" // entries may be there
			}
			return errors.Join(err, list.end())
		}),
	}
	which.addTo(cmd)
	chosen.addTo(cmd, 50)
	output.addTo(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also digests of the event stream (events.span)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new entries")
	return cmd
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
		l.print = func(r timeline.Row) error {
			raw, err := json.Marshal(r)
			if err == nil {
				_, err = l.out.WriteString(escaped(raw) + "\n")
			}
			return err
		}
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
		name(placeOf(r.Project, r.Environment)), name(r.Setting), name(whoText(r.Actor, r.Cause)), reviewed, printable(r.Summary))
	return err
}

// whoText is the actor of an entry; of an unknown one it is the cause.
func whoText(actor, cause string) string {
	if actor == "unknown" {
		return cmp.Or(cause, actor)
	}
	return cmp.Or(actor, cause)
}

func placeOf(project, environment string) string {
	return strings.TrimSuffix(project+"/"+environment, "/")
}
