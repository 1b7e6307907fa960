package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

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
	return question("settings list", p.trail(), forms("table", "json"), func(cmd *cobra.Command, source trailSource, _ []string) ([]timeline.Setting, error) {
		return source.Settings(cmd.Context(), timeline.Filter{Project: where.project, Environment: where.environment})
	}, printSettings, &where)
}

func printSettings(p *page, list []timeline.Setting) {
	p.row("ENVIRONMENT", "SETTING", "CHANGES", "NEWEST ENTRY", "TIME", "SEVERITY", "WHAT")
	for _, s := range list {
		p.row(printable(placeOf(s.Project, s.Environment)), printable(s.Setting), s.Changes, s.Last.Index, moment(s.Last.Time), s.Last.Severity, short(s.Last.Summary))
	}
}

func (p Program) newSettingsShow() *cobra.Command {
	var where whereFlags
	var at timeFlag
	return question("settings show", p.trail(), forms("text", "json"), func(cmd *cobra.Command, source trailSource, args []string) (timeline.State, error) {
		s, err := source.At(cmd.Context(), where.of(args[0]), at.orNow())
		if err == nil {
			err = errReported.when(!s.Known)
		}
		return s, err
	}, printSetting, takes(oneSetting), &where, parsed(&at, "at", "the state at this time (default: now); "+timeFlagHelp))
}

// orNow is the time of an optional flag.
func (f *timeFlag) orNow() time.Time {
	if f.text == "" {
		return time.Now()
	}
	return f.time
}

func printSetting(p *page, s timeline.State) {
	printSettingHead(p, s)
	if s.Known {
		p.line("\n%s", valueText(s.Value))
	}
	if s.Uncertain {
		p.line("\nor, from some moment in the window on:\n\n%s", valueText(s.Next.Value))
	}
}

func valueText(raw []byte) string {
	if len(raw) == 0 {
		return "(it was not there)"
	}
	return indented(raw)
}

// printSettingHead says how sure a state is.
func printSettingHead(p *page, s timeline.State) {
	p.line("%s at %s", printable(s.String()), moment(s.At))
	for _, note := range s.Notes {
		p.line("  warning: %s", printable(note))
	}
	if s.Known {
		p.line("  entry %d, recorded at %s: %s", s.Entry.Index, moment(s.Entry.Time), short(s.Entry.Summary))
	} else {
		p.line("  nothing is known of it at that time: the relay first looked later")
	}
	switch n := s.Next; {
	case n == nil && s.Seen.After(s.Entry.Time):
		p.line("  no later change; last seen so by a look that began at %s", moment(s.Seen))
	case n == nil:
		p.line("  no later change, and no later look is known to have seen it so")
	case s.Uncertain:
		p.line("  UNCERTAIN: it changed after %s and by %s, and when is not known", moment(s.Seen), moment(n.Entry.Time))
		p.line("  entry %d of %s: %s", n.Entry.Index, moment(n.Entry.Time), short(n.Entry.Summary))
	default:
		p.line("  until entry %d of %s: %s", n.Entry.Index, moment(n.Entry.Time), short(n.Entry.Summary))
	}
}

func (p Program) newSettingsDiff() *cobra.Command {
	var where whereFlags
	output := forms("text", "json")
	var from, to timeFlag
	return command("settings diff", p.trail(), func(cmd *cobra.Command, args []string, source trailSource) error {
		states := make([]timeline.State, 2)
		for i, at := range []*timeFlag{&from, &to} {
			s, err := source.At(cmd.Context(), where.of(args[0]), at.orNow())
			if err != nil {
				return err
			}
			if !s.Known {
				return fmt.Errorf("nothing is known of %s at %s: the relay first looked later", s.Where, moment(s.At))
			}
			if s.Uncertain || len(s.Notes) > 0 {
				_ = show(cmd.ErrOrStderr(), s, printSettingHead)
			}
			states[i] = s
		}
		return difference{args[0], states[0].Value, states[1].Value}.print(cmd.OutOrStdout(), output.isJSON())
	}, &where, parsed(&from, "from", "the earlier time; "+timeFlagHelp),
		parsed(&to, "to", "the later time, likewise (default: now)"), needed{"from"}, &output, takes(oneSetting), check(func() error {
			if !from.orNow().Before(to.orNow()) {
				return errors.New("--from must be before --to")
			}
			return nil
		}))
}

// rbacSetting is the setting read by 'who-can'.
const rbacSetting = "rbac_policy"

func (p Program) newSettingsWhoCan() *cobra.Command {
	var where whereFlags
	output := forms("table", "json", "csv")
	var at timeFlag
	return command("settings who-can", p.trail(), func(cmd *cobra.Command, args []string, source trailSource) error {
		answers, failed := whoCanIn(cmd.Context(), source, where, at.orNow(), args[0], args[1])
		return errors.Join(failed, printAnswers(cmd.OutOrStdout(), output.value, answers))
	}, &where, parsed(&at, "at", "the policy at this time (default: now); "+timeFlagHelp), &output, takes(exactly(2, "one ACTION and one RESOURCE, as 'who-can delete documents'")))
}

// whoCanIn answers for the chosen environments with a policy; where there is none, for the one that is
// asked for. One environment without an answer does not hide the others.
func whoCanIn(ctx context.Context, source trailSource, where whereFlags, at time.Time, action, resource string) (answers []whoCanAnswer, failed error) {
	list, err := source.Settings(ctx, timeline.Filter{Setting: rbacSetting, Project: where.project, Environment: where.environment})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		list = []timeline.Setting{{Where: where.of(rbacSetting)}} // its answer says what is wrong
	}
	for i := range list {
		var a whoCanAnswer
		s, err := source.At(ctx, list[i].Where, at)
		if err == nil {
			a, err = whoCan(s, action, resource)
		}
		if err == nil {
			answers = append(answers, a)
		}
		failed = errors.Join(failed, err)
	}
	return answers, failed
}

// printAnswers prints answers in a form.
func printAnswers(w io.Writer, form string, answers []whoCanAnswer) error {
	switch form {
	case "json":
		for i := range answers {
			if err := printJSON(w, &answers[i]); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return csvWhoCan(w, answers)
	}
	return show(w, answers, func(p *page, answers []whoCanAnswer) {
		for i := range answers {
			if i > 0 {
				p.line("")
			}
			printWhoCan(p, &answers[i])
		}
	})
}

// csvWhoCan prints answers as CSV, a line for each holder. CERTAIN is yes, or perhaps where
// the document does not define it; POLICY is later where the change may have come already.
func csvWhoCan(w io.Writer, answers []whoCanAnswer) error {
	out := timeline.CSVLines(w, "project", "environment", "action", "resource", "holder", "by", "certain", "policy", "entry")
	for _, a := range answers {
		var lines [][]string
		add := func(list []meaning.Permit, certain, policy string) {
			for _, p := range list {
				lines = append(lines, []string{
					timeline.CSVCell(a.Project), timeline.CSVCell(a.Environment), timeline.CSVCell(a.Action), timeline.CSVCell(a.Resource), timeline.CSVCell(p.Holder), timeline.CSVCell(p.By), certain, policy, strconv.FormatInt(a.Entry, 10),
				})
			}
		}
		add(a.Who.Who, "yes", "current")
		add(a.Who.Perhaps, "perhaps", "current")
		if a.Later != nil {
			add(a.Later.Who, "yes", "later")
			add(a.Later.Perhaps, "perhaps", "later")
		}
		if err := out(lines...); err != nil {
			return err
		}
	}
	return nil
}

// whoCanAnswer is who could do something. Later is the answer for the policy after the
// change, if that may have stood already.
type whoCanAnswer struct {
	Project     string          `json:"project"`
	Environment string          `json:"environment"`
	Action      string          `json:"action"`
	Resource    string          `json:"resource"`
	Entry       int64           `json:"entry"` // which shows the policy
	Who         meaning.Answer  `json:"who"`
	Later       *meaning.Answer `json:"later,omitempty"`

	state timeline.State // of the policy
}

func whoCan(s timeline.State, action, resource string) (a whoCanAnswer, err error) {
	if !s.Known {
		return a, fmt.Errorf("nothing is known of %s at %s: the relay first looked later", s.Where, moment(s.At))
	}
	a = whoCanAnswer{Project: s.Project, Environment: s.Environment, Action: action, Resource: resource, Entry: s.Entry.Index, state: s}
	if a.Who, err = meaning.WhoCan(s.Value, action, resource); err != nil || !s.Uncertain {
		return a, err
	}
	later, err := meaning.WhoCan(s.Next.Value, action, resource)
	a.Later = &later
	return a, err
}

func printWhoCan(p *page, a *whoCanAnswer) {
	printSettingHead(p, a.state)
	p.line("")
	printHolders(p, a.Who)
	if a.Later != nil {
		p.line("\nor, from some moment in the window on:\n")
		printHolders(p, *a.Later)
	}
}

func printHolders(p *page, a meaning.Answer) {
	if len(a.Who) == 0 {
		p.line("nobody: %s", printable(a.Nobody))
	} else {
		printPermits(p, "WHO", a.Who)
	}
	if len(a.Perhaps) > 0 {
		p.line("")
		printPermits(p, "PERHAPS ALSO", a.Perhaps)
	}
}

func printPermits(p *page, title string, list []meaning.Permit) {
	p.row(title, "BY")
	for _, permit := range list {
		p.row(printable(permit.Holder), printable(permit.By))
	}
}
