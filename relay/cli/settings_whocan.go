package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/meaning"
	"github.com/auditrelay/auditrelay/internal/timeline"
)

// rbacSetting is the setting read by 'who-can'.
const rbacSetting = "rbac_policy"

func (p Program) newSettingsWhoCan() *cobra.Command {
	which := trailFlags{kinds: p.Kinds.Config()}
	var where whereFlags
	var output outputFlag
	var at timeFlag
	cmd := &cobra.Command{
		Use:   "who-can ACTION RESOURCE",
		Short: "Show the roles and scopes permitted to do something at a time",
		Long: `Shows each role and scope permitted by the RBAC policy to do ACTION on RESOURCE at --at, or
now, with the permission: default roles, custom roles and scopes, wildcards resolved.
"Perhaps also" are those with a permission missing from the policy's own lists, or on the
resource *: the document does not define these. An ACTION of * asks for the wildcard. The
API shows no members, so who has a role is not known here. If --at lies in the window of a
change, the answer covers both policies.
` + whichTrail + `

Exit codes: 0 answered (nobody is an answer), 1 nothing is known of the policy at that time,
or failed, 64 wrong usage.`,
		Example: `  auditrelay settings who-can delete documents --config relay.yaml --environment production --at 2026-03-01
  auditrelay settings who-can delete documents --config relay.yaml --project shop --environment test --output json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("give one ACTION and one RESOURCE, as 'who-can delete documents'")
			}
			return nil
		},
		RunE: which.reads(func(cmd *cobra.Command, args []string, source trailSource) error {
			s, err := source.At(cmd.Context(), where.of(rbacSetting), at.orNow())
			if err != nil {
				return err
			}
			a, err := whoCan(s, args[0], args[1])
			switch {
			case err != nil:
				return err
			case output.value == "json":
				return printJSON(cmd.OutOrStdout(), a)
			}
			return printWhoCan(cmd.OutOrStdout(), s, a)
		}),
	}
	which.addTo(cmd)
	where.addTo(cmd)
	cmd.Flags().Var(&at, "at", "the policy at this time (default: now); "+timeFlagHelp)
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

// whoCanAnswer is who could do something. Later is the answer for the policy after the
// change, if that may have stood already.
type whoCanAnswer struct {
	Action   string          `json:"action"`
	Resource string          `json:"resource"`
	Entry    int64           `json:"entry"` // which shows the policy
	Who      meaning.Answer  `json:"who"`
	Later    *meaning.Answer `json:"later,omitempty"`
}

func whoCan(s timeline.State, action, resource string) (a whoCanAnswer, err error) {
	if !s.Known {
		return a, fmt.Errorf("nothing is known of %s at %s: the relay first looked later", s.Where, moment(s.At))
	}
	a = whoCanAnswer{Action: action, Resource: resource, Entry: s.Entry.Index}
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
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, title+"\tBY")
	for _, p := range list {
		_, _ = fmt.Fprintf(out, "%s\t%s\n", printable(p.Holder), printable(p.By))
	}
	return out.Flush()
}
