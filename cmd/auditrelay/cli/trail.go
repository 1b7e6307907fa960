package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newTrail() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trail",
		Short: "Read the audit trail: who changed what, when, and how bad it is",
		Long: `Every change of a setting stands once in the audit trail: with a sentence, a severity, a
direction (does the setting permit more or less than before?), the states before and after,
and the window of time of the change. 'auditrelay settings' shows a setting at a time.`,
		Example: `  auditrelay trail list --config relay.yaml --severity high --since 2026-03-01
  auditrelay trail show 17 --config relay.yaml
  auditrelay trail annotate 17 --config relay.yaml --ticket SEC-7 --reviewer ada --note "as agreed"`,
		Args: subcommands,
		RunE: showHelp,
	}
	cmd.AddCommand(p.newTrailList(), p.newTrailShow(), p.newTrailDiff(), p.newTrailExport(), p.newTrailVerify(), p.newTrailProve(), newTrailAnnotate(), newTrailForward(), newTrailProveEvent(), newTrailListSpan(), newTrailVerifySpan(),
		newTrailKeygen(), p.newTrailRotateKey(), newTrailArchive())
	return cmd
}

// entryFlags choose entries.
type entryFlags struct {
	filter       timeline.Filter
	since, until timeFlag
}

func (f *entryFlags) addTo(cmd *cobra.Command, limit int) {
	flags := cmd.Flags()
	flags.Var(&f.since, "since", "only entries made at or after this time; "+timeFlagHelp)
	flags.Var(&f.until, "until", "only entries made before this time, likewise")
	flags.StringVar(&f.filter.Project, "project", "", "only those of the project `SLUG`; in this and the next three flags a * stands for any text")
	flags.StringVar(&f.filter.Environment, "environment", "", "only those of the environment `SLUG`")
	flags.StringVar(&f.filter.Setting, "setting", "", "only those of the setting `NAME`, as 'settings list' shows it")
	flags.StringVar(&f.filter.Type, "type", "", "only those of the `TYPE`, such as settings.changed")
	flags.StringVar(&f.filter.Severity, "severity", "", "only those at least as severe as `LEVEL`: "+strings.Join(timeline.Severities(), ", "))
	flags.StringVar(&f.filter.Direction, "direction", "", "only those of the `DIRECTION`: "+strings.Join(timeline.Directions(), ", "))
	flags.StringVar(&f.filter.Cause, "cause", "", "only those of the `CAUSE`: relay or outside")
	flags.StringVar(&f.filter.Actor, "actor", "", "only those of `WHO`: relay, unknown, or a person: USER, or USER@HOST, known or claimed; a * stands for any text")
	flags.StringVar(&f.filter.Text, "text", "", "only those with `TEXT` in their sentence, in any case")
	flags.BoolVar(&f.filter.Unreviewed, "unreviewed", false, "only changes without an annotation")
	flags.IntVar(&f.filter.Limit, "limit", limit, "no more than the newest `N` (0: all)")
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
	if n, err := strconv.ParseInt(args[0], 10, 64); err != nil || n < 0 {
		return fmt.Errorf("%q is not the index of an entry, as 'trail list' shows it", args[0])
	}
	return nil
}

// entryOf reads the entry of arguments checked by oneIndex.
func entryOf(cmd *cobra.Command, source trailSource, args []string) (timeline.Entry, error) {
	index, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return timeline.Entry{}, err
	}
	var found *timeline.Entry
	err = source.Entries(cmd.Context(), timeline.Filter{Index: &index}, func(e timeline.Entry) error { found = &e; return nil })
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
