package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// deskRead is a command to read the workspace.
type deskRead struct {
	operation, use, short, example string
	names                          []string // of the arguments after the target
}

func (c deskRead) command() *cobra.Command {
	var request workspace.Request
	output := forms("table", "json", "yaml")
	return command(&cobra.Command{
		Use:   c.use,
		Short: c.short,
		Long: c.short + `.

Exit codes: 0 shown, 1 failed, 64 wrong usage.`,
		Example: "  auditrelay " + c.example + " --config relay.yaml",
		Args: func(_ *cobra.Command, args []string) (err error) {
			request, err = deskRequest(c.operation, c.use, c.names, args, nil)
			return err
		},
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		out, err := client.ReadWorkspace(cmd.Context(), request)
		if err != nil {
			return err
		}
		return printOutcome(cmd.OutOrStdout(), output.value, out)
	}, flagFunc(func(flags *pflag.FlagSet) {
		flags.VarP(&output, "output", "o", "table, json (with the API's request_id, the resource in result) or yaml")
	}))
}

// deskChange is a command to change the workspace.
type deskChange struct {
	operation, use, short, example string
	names                          []string
	arguments                      map[string]string // filled by the command's own flags
	secret                         bool
}

func (c deskChange) command() *cobra.Command {
	var request workspace.Request
	var secretFile string
	var consent consentFlags
	output := forms("table", "json", "yaml")
	return command(&cobra.Command{
		Use:   c.use,
		Short: c.short,
		Long: c.short + `.
It shows what will change, and asks. Without a question (--yes) it wants a --reason.
The audit trail gets an entry before and one after it.

Exit codes: 0 done, 1 not done or of unknown outcome, 64 wrong usage.`,
		Example: "  auditrelay " + c.example + " --config relay.yaml",
		Args: func(_ *cobra.Command, args []string) (err error) {
			request, err = deskRequest(c.operation, c.use, c.names, args, c.arguments)
			return err
		},
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) (err error) {
		if c.secret {
			if request.Secret, err = readSecret(cmd, secretFile); err != nil {
				return err
			}
		}
		request.Reason = consent.reason
		return act(cmd, client, request, consent, output.value)
	}, &consent, dryRunFlag(&consent.dryRun, "only show what would change"), flagFunc(func(flags *pflag.FlagSet) {
		flags.VarP(&output, "output", "o", "of the result: table, json (with the ids of the action and the request, the resource in result) or yaml")
		if c.secret {
			flags.StringVar(&secretFile, "secret-file", "", "the password or API key: a `FILE`, or - for standard input")
			_ = cobra.MarkFlagRequired(flags, "secret-file") // fails only for an unknown flag
		}
	}))
}

// act plans, asks and performs.
func act(cmd *cobra.Command, client *console.Client, r workspace.Request, consent consentFlags, output string) error {
	plan, err := client.PlanWorkspace(cmd.Context(), r)
	if err != nil {
		return err
	}
	for _, change := range plan.Changes {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "will change: %s\n", printable(change))
	}
	if consent.dryRun {
		return nil
	}
	if err := confirm(cmd, consent.yes, "Do it?"); err != nil {
		return err
	}
	r.Seen = plan.Seen
	out, err := client.ActOnWorkspace(cmd.Context(), r)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "done: action %s, request %s\n", out.Action, printable(out.RequestID))
	return printOutcome(cmd.OutOrStdout(), output, out)
}

// printOutcome prints the resource of an answer; as JSON, with the ids of the answer.
func printOutcome(w io.Writer, form string, out workspace.Outcome) error {
	switch {
	case form == "json":
		_, err := fmt.Fprintln(w, indented(jsondiff.Encode(out)))
		return err
	case len(out.Result) == 0:
		return nil
	}
	return printState(w, form, out.Result)
}
