package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// rbacSetting is the setting read by 'who-can'.
const rbacSetting = "rbac_policy"

func (p Program) newSettingsWhoCan() *cobra.Command {
	var where whereFlags
	output := forms("table", "json", "csv")
	var at timeFlag
	return command(&cobra.Command{
		Use:   "who-can ACTION RESOURCE",
		Short: "Show the roles and scopes permitted to do something at a time",
		Long: `Shows each role and scope permitted by the RBAC policy to do ACTION on RESOURCE at --at, or
now, with the permission: default roles, custom roles and scopes, wildcards resolved.
"Perhaps also" are those with a permission missing from the policy's own lists, or on the
resource *: the document does not define these. An ACTION of * asks for the wildcard. The
API shows no members, so who has a role is not known here. If --at lies in the window of a
change, the answer covers both policies. Without --project and --environment it answers for
every environment, one after the other: with --output json an object for each.

Exit codes: 0 answered (nobody is an answer), 1 nothing is known of the policy at that time,
or failed, 64 wrong usage.`,
		Example: `  auditrelay settings who-can delete documents --config relay.yaml --environment production --at 2026-03-01
  auditrelay settings who-can delete documents --config relay.yaml --project shop --environment test --output json
  auditrelay settings who-can '*' documents --config relay.yaml --output csv > review.csv`,
		Args: exactly(2, "one ACTION and one RESOURCE, as 'who-can delete documents'"),
	}, p.trail(), func(cmd *cobra.Command, args []string, source trailSource) error {
		policies, err := policiesOf(cmd.Context(), source, where)
		if err != nil {
			return err
		}
		answer := whoCanTo(cmd.OutOrStdout(), output.value)
		var failed error // one environment does not hide the others
		for _, w := range policies {
			failed = errors.Join(failed, answerWhoCan(cmd.Context(), source, w, at.orNow(), args, answer))
		}
		return failed
	}, &where, flagFunc(func(flags *pflag.FlagSet) {
		flags.Var(&at, "at", "the policy at this time (default: now); "+timeFlagHelp)
	}), &output)
}

// policiesOf lists the chosen environments with a policy; where there is none, the one that
// is asked for.
func policiesOf(ctx context.Context, source trailSource, where whereFlags) ([]timeline.Where, error) {
	list, err := source.Settings(ctx, timeline.Filter{Setting: rbacSetting, Project: where.project, Environment: where.environment})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return []timeline.Where{where.of(rbacSetting)}, nil // its answer says what is wrong
	}
	policies := make([]timeline.Where, len(list))
	for i := range list {
		policies[i] = list[i].Where
	}
	return policies, nil
}

func answerWhoCan(ctx context.Context, source trailSource, w timeline.Where, at time.Time, args []string, answer func(timeline.State, whoCanAnswer) error) error {
	s, err := source.At(ctx, w, at)
	if err != nil {
		return err
	}
	a, err := whoCan(s, args[0], args[1])
	if err != nil {
		return err
	}
	return answer(s, a)
}

// whoCanTo prints answers in a form.
func whoCanTo(w io.Writer, form string) func(timeline.State, whoCanAnswer) error {
	switch form {
	case "json":
		return func(_ timeline.State, a whoCanAnswer) error { return printJSON(w, a) }
	case "csv":
		return csvWhoCan(w)
	}
	gap := ""
	return func(s timeline.State, a whoCanAnswer) error {
		_, _ = io.WriteString(w, gap)
		gap = "\n"
		return printWhoCan(w, s, a)
	}
}

// csvWhoCan prints answers as CSV, a line for each holder. CERTAIN is yes, or perhaps where
// the document does not define it; POLICY is later where the change may have come already.
func csvWhoCan(w io.Writer) func(timeline.State, whoCanAnswer) error {
	out, first := csv.NewWriter(w), true
	return func(_ timeline.State, a whoCanAnswer) error {
		if first {
			first = false
			_ = out.Write([]string{"project", "environment", "action", "resource", "holder", "by", "certain", "policy", "entry"})
		}
		lines := func(list []meaning.Permit, certain, policy string) {
			for _, p := range list {
				_ = out.Write([]string{
					csvCell(a.Project), csvCell(a.Environment), csvCell(a.Action), csvCell(a.Resource), csvCell(p.Holder), csvCell(p.By), certain, policy, strconv.FormatInt(a.Entry, 10),
				})
			}
		}
		lines(a.Who.Who, "yes", "current")
		lines(a.Who.Perhaps, "perhaps", "current")
		if a.Later != nil {
			lines(a.Later.Who, "yes", "later")
			lines(a.Later.Perhaps, "perhaps", "later")
		}
		out.Flush()
		return out.Error()
	}
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
}

func whoCan(s timeline.State, action, resource string) (a whoCanAnswer, err error) {
	if !s.Known {
		return a, fmt.Errorf("nothing is known of %s at %s: the relay first looked later", s.Where, moment(s.At))
	}
	a = whoCanAnswer{Project: s.Project, Environment: s.Environment, Action: action, Resource: resource, Entry: s.Entry.Index}
	if a.Who, err = meaning.WhoCan(s.Value, action, resource); err != nil || !s.Uncertain {
		return a, err
	}
	later, err := meaning.WhoCan(s.Next.Value, action, resource)
	a.Later = &later
	return a, err
}

func printWhoCan(w io.Writer, s timeline.State, a whoCanAnswer) error {
	printSettingHead(w, s)
	_, _ = fmt.Fprintln(w)
	if err := printHolders(w, a.Who); err != nil || a.Later == nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\nor, from some moment in the window on:\n\n")
	return printHolders(w, *a.Later)
}

func printHolders(w io.Writer, a meaning.Answer) error {
	if len(a.Who) == 0 {
		_, _ = fmt.Fprintln(w, "nobody: "+printable(a.Nobody))
	} else if err := printPermits(w, "WHO", a.Who); err != nil {
		return err
	}
	if len(a.Perhaps) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(w)
	return printPermits(w, "PERHAPS ALSO", a.Perhaps)
}

func printPermits(w io.Writer, title string, list []meaning.Permit) error {
	out := newTable(w, title, "BY")
	for _, p := range list {
		out.row(printable(p.Holder), printable(p.By))
	}
	return out.Flush()
}
