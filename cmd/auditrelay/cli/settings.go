package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newSettings() *cobra.Command {
	return under(&cobra.Command{
		Use:   "settings",
		Short: "Show the workspace's settings, now or at a time",
		Long: `Shows the workspace's settings from the audit trail, at any time since the relay first
looked. Between two looks with different states the time of the change is not known: then
both are shown, with the window.`,
		Example: `  auditrelay settings list --config relay.yaml
  auditrelay settings show password_strength_config --config relay.yaml --environment production --at 2026-03-01
  auditrelay settings diff rbac_policy --config relay.yaml --environment production --from 2026-03-01 --to 2026-04-01
  auditrelay settings who-can delete documents --config relay.yaml --environment production --at 2026-03-01`,
	}, p.newSettingsList(), p.newSettingsShow(), p.newSettingsDiff(), p.newSettingsWhoCan())
}

// whereFlags name a setting's place.
type whereFlags struct{ project, environment string }

func (f *whereFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", "the setting's project `SLUG`, needed if there are several")
	cmd.Flags().StringVar(&f.environment, "environment", "", "the setting's environment `SLUG`, needed if there are several")
}

func (f *whereFlags) of(setting string) timeline.Where {
	return timeline.Where{Project: f.project, Environment: f.environment, Setting: setting}
}

// oneSetting takes one argument, the name of a setting.
var oneSetting = exactly(1, "the NAME of one setting, as 'settings list' shows it")

func (p Program) newSettingsList() *cobra.Command {
	var where whereFlags
	cmd := question(&cobra.Command{
		Use:   "list",
		Short: "List the settings with states in the audit trail",
		Long: `Lists the settings with states in the audit trail: how often each changed since the first
look, and its newest entry.

Exit codes: 0 listed, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay settings list --config relay.yaml
  auditrelay settings list --config relay.yaml --environment production --output json`,
	}, p.trail(), forms("table", "json"), func(cmd *cobra.Command, source trailSource, _ []string) ([]timeline.Setting, error) {
		return source.Settings(cmd.Context(), timeline.Filter{Project: where.project, Environment: where.environment})
	}, printSettings)
	where.addTo(cmd)
	return cmd
}

func printSettings(w io.Writer, list []timeline.Setting) error {
	out := newTable(w, "ENVIRONMENT", "SETTING", "CHANGES", "NEWEST ENTRY", "TIME", "SEVERITY", "WHAT")
	for _, s := range list {
		out.row(printable(placeOf(s.Project, s.Environment)), printable(s.Setting), s.Changes, s.Last.Index, moment(s.Last.Time), s.Last.Severity, short(s.Last.Summary))
	}
	return out.Flush()
}

func (p Program) newSettingsShow() *cobra.Command {
	var where whereFlags
	var at timeFlag
	cmd := question(&cobra.Command{
		Use:   "show NAME",
		Short: "Show a setting at a time",
		Long: `Shows the state of a setting at --at, or now, as the relay saw it: the state, its entry in
the trail, and the next change. Without a next change, it shows when the latest look that
found this state began: as the running relay knows it, or with --offline, as the looks are
attested in the trail, once a day and when the relay stops. Where --at lies in the window of
the next change, the setting was in one of two states, and both are shown. A date alone, as
2026-03-01, is the first moment of that day on this machine.

Exit codes: 0 shown, 1 nothing is known of it at that time, or failed, 64 wrong usage.`,
		Example: `  auditrelay settings show password_strength_config --config relay.yaml --at 2026-03-01
  auditrelay settings show rbac_policy --config relay.yaml --environment production --at "2026-03-01 09:30" --output json | jq .value`,
		Args: oneSetting,
	}, p.trail(), forms("text", "json"), func(cmd *cobra.Command, source trailSource, args []string) (timeline.State, error) {
		return source.At(cmd.Context(), where.of(args[0]), at.orNow())
	}, printSetting, func(s timeline.State) error {
		if !s.Known {
			return errReported
		}
		return nil
	})
	where.addTo(cmd)
	cmd.Flags().Var(&at, "at", "the state at this time (default: now); "+timeFlagHelp)
	return cmd
}

// orNow is the time of an optional flag.
func (f *timeFlag) orNow() time.Time {
	if f.text == "" {
		return time.Now()
	}
	return f.time
}

func printSetting(w io.Writer, s timeline.State) error {
	printSettingHead(w, s)
	if s.Known {
		_, _ = fmt.Fprintf(w, "\n%s\n", valueText(s.Value))
	}
	if !s.Uncertain {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nor, from some moment in the window on:\n\n%s\n", valueText(s.Next.Value))
	return err
}

func valueText(raw []byte) string {
	if len(raw) == 0 {
		return "(it was not there)"
	}
	return indented(raw)
}

// printSettingHead says how sure a state is.
func printSettingHead(w io.Writer, s timeline.State) {
	_, _ = fmt.Fprintf(w, "%s at %s\n", printable(s.String()), moment(s.At))
	for _, note := range s.Notes {
		_, _ = fmt.Fprintf(w, "  warning: %s\n", printable(note))
	}
	if s.Known {
		_, _ = fmt.Fprintf(w, "  entry %d, recorded at %s: %s\n", s.Entry.Index, moment(s.Entry.Time), short(s.Entry.Summary))
	} else {
		_, _ = fmt.Fprintln(w, "  nothing is known of it at that time: the relay first looked later")
	}
	switch n := s.Next; {
	case n == nil && s.Seen.After(s.Entry.Time):
		_, _ = fmt.Fprintf(w, "  no later change; last seen so by a look that began at %s\n", moment(s.Seen))
	case n == nil:
		_, _ = fmt.Fprintln(w, "  no later change, and no later look is known to have seen it so")
	case s.Uncertain:
		_, _ = fmt.Fprintf(w, "  UNCERTAIN: it changed after %s and by %s, and when is not known\n", moment(s.Seen), moment(n.Entry.Time))
		_, _ = fmt.Fprintf(w, "  entry %d of %s: %s\n", n.Entry.Index, moment(n.Entry.Time), short(n.Entry.Summary))
	default:
		_, _ = fmt.Fprintf(w, "  until entry %d of %s: %s\n", n.Entry.Index, moment(n.Entry.Time), short(n.Entry.Summary))
	}
}
