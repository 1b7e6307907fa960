package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

func newWorkspace() *cobra.Command {
	cmd := group("workspace", "Read the workspace, and act on it with a trace in the audit trail", `Performs the operations of the Workspace Management API by a running relay, with its
management key and within its request rate.

A mutation shows what it will change, and asks, except with --yes. The audit trail gets
an entry before it, with your user name, host and --reason, and one after it with the
outcome and the API's request id.`)
	templates := onlyRead("templates", "Email templates of a project")
	templates.Long += "\nOnly a default template can be unset; no operation sets one."
	templates.AddCommand(deskRead{
		operation: "templates.list", use: "list PROJECT", short: "List the email templates", example: "workspace templates list shop",
	}.command())
	templates.AddCommand(group("default", "The default template of a type", "", deskRead{
		operation: "templates.default.get", use: "get PROJECT TYPE", names: []string{"type"},
		short: "Show the id of the default template of a type", example: "workspace templates default get shop LOGIN",
	}.command(), deskChange{
		operation: "templates.default.unset", use: "unset PROJECT TYPE", names: []string{"type"},
		short: "Remove the default template of a type", example: "workspace templates default unset shop LOGIN --reason CHG-12",
	}.command()))
	cmd.AddCommand(
		newWorkspaceProject(), newWorkspaceRedirects(), templates, newWorkspaceStreaming(),
		group("secret", "Secrets of an environment", "", deskChange{
			operation: "secret.delete", use: "delete PROJECT/ENVIRONMENT SECRET_ID", names: []string{"secret_id"},
			short: "Delete a secret", example: "workspace secret delete shop/live secret-live-1 --reason 'leaked in CI'",
		}.command()),
		group("public-token", "Public tokens of an environment", "", deskChange{
			operation: "public_token.delete", use: "delete PROJECT/ENVIRONMENT TOKEN", names: []string{"public_token"},
			short: "Delete a public token", example: "workspace public-token delete shop/live public-token-live-1 --reason CHG-13",
		}.command()),
	)
	for _, s := range kinds.Of(false) {
		if show := s.Command; show != (kinds.Command{}) {
			cmd.AddCommand(onlyRead(show.Noun, show.About, deskRead{
				operation: show.Operation(), use: show.Verb + " PROJECT/ENVIRONMENT", short: show.Short,
				example: "workspace " + show.Noun + " " + show.Verb + " shop/live",
			}.command()))
		}
	}
	return cmd
}

func newWorkspaceProject() *cobra.Command {
	vertical := map[string]string{}
	create := deskChange{
		operation: "project.create", use: "create NAME", names: []string{"name"}, arguments: vertical,
		short: "Create a project", example: "workspace project create 'Web shop' --vertical B2B --reason CHG-14",
	}.command()
	create.Flags().Var(argument{vertical, "vertical"}, "vertical", "the kind of the project's customers: `B2B`, or another known to the API")
	needFlags(create, "vertical")
	return group("project", "Projects", "", deskRead{
		operation: "project.get", use: "get PROJECT", short: "Show a project", example: "workspace project get shop",
	}.command(), deskChange{
		operation: "project.rename", use: "rename PROJECT NAME", names: []string{"name"},
		short: "Give a project another name", example: "workspace project rename shop 'Web shop' --reason CHG-15",
	}.command(), create)
}

func newWorkspaceRedirects() *cobra.Command {
	arguments := map[string]string{}
	cmd := deskChange{
		operation: "redirect_urls.set_types", use: "set-types PROJECT/ENVIRONMENT URL", names: []string{"url"}, arguments: arguments,
		short:   "Set the valid types of a redirect URL; the lists replace the present ones",
		example: "workspace redirect-urls set-types shop/live https://shop.example.com/auth --types LOGIN,SIGNUP --default-types INVITE --reason CHG-16",
	}.command()
	cmd.Flags().Var(argument{arguments, "types"}, "types", "the valid `TYPES`, separated by commas: LOGIN,SIGNUP; \"\" for none but the defaults")
	cmd.Flags().Var(argument{arguments, "default_types"}, "default-types", "the `TYPES` it becomes the default for; they are valid types, too")
	cmd.Flags().BoolFunc("do-not-promote-defaults", "promote no other URL if this one was the default", func(value string) error {
		arguments["do_not_promote_defaults"] = value
		return nil
	})
	return group("redirect-urls", "Redirect URLs of an environment (the API cannot show them)", "", cmd)
}

func newWorkspaceStreaming() *cobra.Command {
	arguments := map[string]string{}
	set := deskChange{
		operation: "streaming.set", use: "set PROJECT/ENVIRONMENT TYPE", names: []string{"type"}, arguments: arguments, secret: true,
		short: "Set the event log streaming config, where the relay's configuration does not",
		example: `workspace streaming set shop/live GRAFANA_LOKI --hostname loki.example.com --username u --secret-file loki.password
  auditrelay workspace streaming set shop/live DATADOG --site US --secret-file datadog.key`,
	}.command()
	set.Flags().Var(argument{arguments, "hostname"}, "hostname", "the `HOST` of GRAFANA_LOKI, without scheme and path")
	set.Flags().Var(argument{arguments, "username"}, "username", "the `USER` name of GRAFANA_LOKI")
	set.Flags().Var(argument{arguments, "site"}, "site", "the `SITE` of DATADOG: US, EU or another known to the API")
	return group("streaming", "The event log streaming config of an environment", "", deskRead{
		operation: "streaming.get", use: "get PROJECT/ENVIRONMENT TYPE", names: []string{"type"},
		short: "Show the streaming config of a type, DATADOG or GRAFANA_LOKI", example: "workspace streaming get shop/live GRAFANA_LOKI",
	}.command(), set)
}

// onlyRead is a group of what the API can read only.
func onlyRead(use, short string, commands ...*cobra.Command) *cobra.Command {
	return group(use, short, short+".\nThe API has no operation that changes this: it is changed, or put back, in the dashboard.", commands...)
}

// argument is a flag for an argument of an operation.
type argument struct {
	of   map[string]string
	name string
}

func (a argument) String() string         { return a.of[a.name] }
func (a argument) Set(value string) error { a.of[a.name] = value; return nil }
func (a argument) Type() string           { return "string" }

// deskRequest makes the request of a command line: the target first, if the command's
// use names one, then the arguments in the order of names.
func deskRequest(operation, use string, names, args []string, arguments map[string]string) (workspace.Request, error) {
	r := workspace.Request{Operation: operation, Arguments: map[string]string{}}
	words := strings.Fields(use)[1:]
	if len(args) != len(words) {
		return r, fmt.Errorf("give %s", strings.Join(words, " "))
	}
	switch words[0] {
	case "PROJECT":
		r.Project, args = args[0], args[1:]
	case "PROJECT/ENVIRONMENT":
		of, err := environmentOf(args[0])
		if err != nil {
			return r, err
		}
		r.Project, r.Environment, args = of.Project, of.Environment, args[1:]
	}
	for i, name := range names {
		r.Arguments[name] = args[i]
	}
	maps.Copy(r.Arguments, arguments)
	return r, nil
}

// thisPerson is who runs this command, or who called sudo for it. The relay takes it for a
// claim: it knows the user of the command's process from the kernel.
func thisPerson() workspace.Person {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	host, _ := os.Hostname() // "unknown" stands for it
	return workspace.Person{User: cmp.Or(name, "unknown"), Host: cmp.Or(host, "unknown")}
}

// thisProcess is the owner of this process, for what it enters into the trail of a stopped relay
// itself, with the claim of [thisPerson].
func thisProcess() workspace.Person {
	says := thisPerson()
	id := uint32(os.Getuid()) //nolint:gosec // it is one
	p := workspace.Person{User: "uid " + strconv.Itoa(os.Getuid()), Host: says.Host, UID: &id}
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		p.User = u.Username
	}
	if says.User != p.User {
		p.Claimed = says.User + "@" + says.Host
	}
	return p
}

// readSecret reads a secret from a file, or of "-" from standard input. One line end
// at its end does not count.
func readSecret(cmd *cobra.Command, file string) (secret.Text, error) {
	const limit = 64 << 10
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return secret.Text{}, fmt.Errorf("read the secret: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit))
	if err != nil {
		return secret.Text{}, fmt.Errorf("read the secret: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" {
		return secret.Text{}, errors.New("read the secret: there is none in " + file)
	}
	return secret.New(value), nil
}

// deskRead is a command to read the workspace.
type deskRead struct {
	operation, use, short, example string
	names                          []string // of the arguments after the target
}

func (c deskRead) command() *cobra.Command {
	var request workspace.Request
	output := forms("table", "json", "yaml")
	return command(&cobra.Command{
		Use:     c.use,
		Short:   c.short,
		Long:    exits("0 shown, 1 failed", c.short+"."),
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
		Long: exits("0 done, 1 not done or of unknown outcome", c.short+`.
It shows what will change, and asks. Without a question (--yes) it wants a --reason.
The audit trail gets an entry before and one after it.`),
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
	}, &consent, onOff(&consent.dryRun, "dry-run", "only show what would change"), flagFunc(func(flags *pflag.FlagSet) {
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
