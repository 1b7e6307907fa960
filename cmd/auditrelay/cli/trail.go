package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// entryFlags choose entries.
type entryFlags struct {
	filter       timeline.Filter
	since, until timeFlag
	limit        int // of entries, unless --limit is given; 0 for all
}

func (f *entryFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.since, "since", "only entries made at or after this time; "+timeFlagHelp)
	flags.Var(&f.until, "until", "only entries made before this time, likewise")
	flags.StringVar(&f.filter.Project, "project", "", "only those of the project `SLUG`; in this and the next three flags a * stands for any text")
	flags.StringVar(&f.filter.Environment, "environment", "", "only those of the environment `SLUG`")
	flags.StringVar(&f.filter.Setting, "setting", "", "only those of the setting `NAME`, as 'settings list' shows it")
	flags.StringVar(&f.filter.Type, "type", "", "only those of the `TYPE`, such as settings.changed; write several with commas between them")
	flags.StringVar(&f.filter.Severity, "severity", "", "only those at least as severe as `LEVEL`: "+strings.Join(timeline.Severities(), ", "))
	flags.StringVar(&f.filter.Direction, "direction", "", "only those of the `DIRECTION`: "+strings.Join(timeline.Directions(), ", "))
	flags.StringVar(&f.filter.Cause, "cause", "", "only those of the `CAUSE`: relay or outside")
	flags.StringVar(&f.filter.Actor, "actor", "", "only those of `WHO`: relay, unknown, or a person: USER, or USER@HOST, known or claimed; a * stands for any text")
	flags.StringVar(&f.filter.Text, "text", "", "only those with `TEXT` in their sentence, in any case")
	flags.BoolVar(&f.filter.Unreviewed, "unreviewed", false, "only changes without an annotation")
	flags.IntVar(&f.filter.Limit, "limit", f.limit, "no more than the newest `N` (0: all)")
	before(cmd, func() error {
		f.filter.Since, f.filter.Until = f.since.time, f.until.time
		return f.filter.Check()
	})
}

// oneIndex takes one argument, the index of an entry.
func oneIndex(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("give the INDEX of one entry, as 'trail list' shows it")
	}
	if indexOf(args[0]) < 0 {
		return fmt.Errorf("%q is not the index of an entry, as 'trail list' shows it", args[0])
	}
	return nil
}

// indexOf is the index of an entry; -1 for none.
func indexOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// entryOf reads the entry of arguments checked by oneIndex.
func entryOf(cmd *cobra.Command, source trailSource, args []string) (timeline.Entry, error) {
	index := indexOf(args[0])
	var found *timeline.Entry
	err := source.Entries(cmd.Context(), timeline.Filter{Index: &index}, func(e timeline.Entry) error { found = &e; return nil })
	switch {
	case err != nil:
		return timeline.Entry{}, err
	case found == nil:
		return timeline.Entry{}, fmt.Errorf("there is no entry %d in the trail; 'auditrelay trail list' shows the newest", index)
	case found.Missing:
		return timeline.Entry{}, fmt.Errorf("entry %d cannot be read: %s; 'auditrelay journal verify' says more", index, found.Summary)
	}
	return *found, nil
}

func newTrailAnnotate() *cobra.Command {
	var a timeline.Annotation
	return command("trail annotate", &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
		a.Index = indexOf(args[0])
		done, err := client.Annotate(cmd.Context(), a)
		if err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "entry %d is marked as reviewed, by entry %d", a.Index, done.Entry)
	}, text(&a.Reviewer, "reviewer", "the reviewer's `NAME`"), text(&a.Ticket, "ticket", "the `TICKET` it belongs to"),
		text(&a.Note, "note", "a `TEXT` for later readers"), needed{"reviewer"}, takes(oneIndex), check(func() error { return a.Check() }))
}

func newTrailForward() *cobra.Command {
	var chosen entryFlags
	var request console.ForwardTrail
	return command("trail forward", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request.Filter = chosen.filter
		p, err := watched(cmd, client.ForwardTrail, request)
		var unread error
		if p.Damaged > 0 {
			unread = fmt.Errorf("%d entries cannot be read; 'auditrelay journal verify' names them", p.Damaged)
		}
		return delivered(cmd.OutOrStdout(), "entries", p, request.DryRun, err, unread)
	}, &chosen, text(&request.Sink, "sink", "the receiving sink's `NAME`"), onOff(&request.DryRun, "dry-run", "only count"), needed{"sink", "since"})
}

// timeFlag is a point in time on the command line: RFC 3339, a local date with or without
// a time of day, or how long ago.
type timeFlag struct {
	time time.Time
	text string
}

const timeFlagHelp = "`TIME` is RFC 3339 (2026-11-03T08:30:00Z), local (2026-11-03, \"2026-11-03 08:30\"), or how long ago (90m, 7d, \"2h ago\")"

// localForms are the forms of a local time. A date alone is its first moment.
var localForms = []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"}

// Set implements pflag.Value.
func (f *timeFlag) Set(text string) error {
	f.text = text
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		f.time = t
		return nil
	}
	for _, form := range localForms {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			f.time = t
			return nil
		}
	}
	d, err := lengthOf(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "ago")))
	if err != nil || d < 0 {
		return errors.New("write RFC 3339, as 2026-11-03T08:30:00Z, or how long ago, as 90m, 7d or \"48h ago\", or a local date, as 2026-11-03")
	}
	f.time = time.Now().Add(-d)
	return nil
}

// lengthOf reads a length of time: one of [time.ParseDuration], or whole days.
func lengthOf(text string) (time.Duration, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// String implements pflag.Value.
func (f *timeFlag) String() string { return f.text }

// Type implements pflag.Value.
func (f *timeFlag) Type() string { return "time" }
