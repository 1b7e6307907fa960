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

// deskGroups are the groups of commands below `auditrelay workspace`.
var deskGroups = []struct{ path, short, long string }{
	{"project", "Projects", ""},
	{"redirect-urls", "Redirect URLs of an environment (the API cannot show them)", ""},
	{"templates", "Email templates of a project", onlyRead("Email templates of a project") + "\nOnly a default template can be unset; no operation sets one."},
	{"templates default", "The default template of a type", ""},
	{"streaming", "The event log streaming config of an environment", ""},
	{"secret", "Secrets of an environment", ""},
	{"public-token", "Public tokens of an environment", ""},
}

// onlyRead is the help of a group that the API can read only.
func onlyRead(short string) string {
	return short + ".\nThe API has no operation that changes this: it is changed, or put back, in the dashboard."
}

// deskCommand is a command to read the workspace, or to change it.
type deskCommand struct {
	group, use, operation, short string
	example                      string   // what follows the command's name
	names                        []string // of the arguments after the target
	flags                        []deskFlag
	changes, secret              bool
}

// deskFlag is a flag for an argument of the operation.
type deskFlag struct {
	name, about  string
	needed, bare bool
}

var deskCommands = []deskCommand{
	{group: "project", use: "get PROJECT", operation: "project.get", short: "Show a project", example: "shop"},
	{
		group: "project", use: "rename PROJECT NAME", operation: "project.rename", names: []string{"name"}, changes: true,
		short: "Give a project another name", example: "shop 'Web shop' --reason CHG-15",
	},
	{
		group: "project", use: "create NAME", operation: "project.create", names: []string{"name"}, changes: true,
		short: "Create a project", example: "'Web shop' --vertical B2B --reason CHG-14",
		flags: []deskFlag{{name: "vertical", about: "the kind of the project's customers: `B2B`, or another known to the API", needed: true}},
	},
	{
		group: "redirect-urls", use: "set-types PROJECT/ENVIRONMENT URL", operation: "redirect_urls.set_types", names: []string{"url"}, changes: true,
		short:   "Set the valid types of a redirect URL; the lists replace the present ones",
		example: "shop/live https://shop.example.com/auth --types LOGIN,SIGNUP --default-types INVITE --reason CHG-16",
		flags: []deskFlag{
			{name: "types", about: "the valid `TYPES`, separated by commas: LOGIN,SIGNUP; \"\" for none but the defaults"},
			{name: "default-types", about: "the `TYPES` it becomes the default for; they are valid types, too"},
			{name: "do-not-promote-defaults", about: "promote no other URL if this one was the default", bare: true},
		},
	},
	{group: "templates", use: "list PROJECT", operation: "templates.list", short: "List the email templates", example: "shop"},
	{
		group: "templates default", use: "get PROJECT TYPE", operation: "templates.default.get", names: []string{"type"},
		short: "Show the id of the default template of a type", example: "shop LOGIN",
	},
	{
		group: "templates default", use: "unset PROJECT TYPE", operation: "templates.default.unset", names: []string{"type"}, changes: true,
		short: "Remove the default template of a type", example: "shop LOGIN --reason CHG-12",
	},
	{
		group: "streaming", use: "get PROJECT/ENVIRONMENT TYPE", operation: "streaming.get", names: []string{"type"},
		short: "Show the streaming config of a type, DATADOG or GRAFANA_LOKI", example: "shop/live GRAFANA_LOKI",
	},
	{
		group: "streaming", use: "set PROJECT/ENVIRONMENT TYPE", operation: "streaming.set", names: []string{"type"}, changes: true, secret: true,
		short: "Set the event log streaming config, where the relay's configuration does not",
		example: `shop/live GRAFANA_LOKI --hostname loki.example.com --username u --secret-file loki.password
  auditrelay workspace streaming set shop/live DATADOG --site US --secret-file datadog.key`,
		flags: []deskFlag{
			{name: "hostname", about: "the `HOST` of GRAFANA_LOKI, without scheme and path"},
			{name: "username", about: "the `USER` name of GRAFANA_LOKI"},
			{name: "site", about: "the `SITE` of DATADOG: US, EU or another known to the API"},
		},
	},
	{
		group: "secret", use: "delete PROJECT/ENVIRONMENT SECRET_ID", operation: "secret.delete", names: []string{"secret_id"}, changes: true,
		short: "Delete a secret", example: "shop/live secret-live-1 --reason 'leaked in CI'",
	},
	{
		group: "public-token", use: "delete PROJECT/ENVIRONMENT TOKEN", operation: "public_token.delete", names: []string{"public_token"}, changes: true,
		short: "Delete a public token", example: "shop/live public-token-live-1 --reason CHG-13",
	},
}

func newWorkspace() *cobra.Command {
	cmd := group("workspace")
	groups := map[string]*cobra.Command{"": cmd}
	add := func(path, short, long string) {
		above, name := "", path
		if i := strings.LastIndex(path, " "); i > 0 {
			above, name = path[:i], path[i+1:]
		}
		groups[path] = under(&cobra.Command{Use: name, Short: short, Long: long})
		groups[above].AddCommand(groups[path])
	}
	for _, g := range deskGroups {
		add(g.path, g.short, g.long)
	}
	for _, c := range deskCommands {
		groups[c.group].AddCommand(c.command())
	}
	for _, s := range kinds.Of(false) {
		if c := s.Command; c != (kinds.Command{}) {
			add(c.Noun, c.About, onlyRead(c.About))
			show := deskCommand{group: c.Noun, use: c.Verb + " PROJECT/ENVIRONMENT", operation: c.Operation(), short: c.Short, example: "shop/live"}
			groups[c.Noun].AddCommand(show.command())
		}
	}
	return cmd
}

func (c deskCommand) command() *cobra.Command {
	var request workspace.Request
	arguments := map[string]string{}
	verb, _, _ := strings.Cut(c.use, " ")
	cmd := &cobra.Command{
		Use:     c.use,
		Short:   c.short,
		Long:    c.short + ".\n\nExit codes: 0 shown, 1 failed, 64 wrong usage.",
		Example: fmt.Sprintf("  auditrelay workspace %s %s %s --config relay.yaml", c.group, verb, c.example),
	}
	target := takes(func(_ *cobra.Command, args []string) (err error) {
		request, err = c.request(args, arguments)
		return err
	})
	if c.changes {
		return c.change(cmd, target, &request, arguments)
	}
	output := forms("table", "json", "yaml")
	output.about = "table, json (with the API's request_id, the resource in result) or yaml"
	return complete(cmd, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		out, err := client.ReadWorkspace(cmd.Context(), request)
		if err != nil {
			return err
		}
		return printOutcome(cmd.OutOrStdout(), output.value, out)
	}, target, &output)
}

// change completes a command that changes the workspace.
func (c deskCommand) change(cmd *cobra.Command, target takes, request *workspace.Request, arguments map[string]string) *cobra.Command {
	cmd.Long = c.short + `.
It shows what will change, and asks. Without a question (--yes) it wants a --reason.
The audit trail gets an entry before and one after it.

Exit codes: 0 done, 1 not done or of unknown outcome, 64 wrong usage.`
	var secretFile string
	var consent consentFlags
	output := forms("table", "json", "yaml")
	output.about = "of the result: table, json (with the ids of the action and the request, the resource in result) or yaml"
	flags := []flagged{target, &consent, onOff(&consent.dryRun, "dry-run", "only show what would change"), &output}
	for _, f := range c.flags {
		a := argument{arguments, strings.ReplaceAll(f.name, "-", "_")}
		if flags = append(flags, parsed(a, f.name, f.about)); f.bare {
			flags[len(flags)-1] = flagFunc(func(flags *pflag.FlagSet) { flags.BoolFunc(f.name, f.about, a.Set) })
		}
		if f.needed {
			flags = append(flags, needed{f.name})
		}
	}
	if c.secret {
		flags = append(flags, text(&secretFile, "secret-file", "the password or API key: a `FILE`, or - for standard input"), needed{"secret-file"})
	}
	return complete(cmd, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) (err error) {
		if c.secret {
			if request.Secret, err = readSecret(cmd, secretFile); err != nil {
				return err
			}
		}
		request.Reason = consent.reason
		return act(cmd, client, *request, consent, output.value)
	}, flags...)
}

// argument is a flag for an argument of an operation.
type argument struct {
	of   map[string]string
	name string
}

func (a argument) String() string         { return a.of[a.name] }
func (a argument) Set(value string) error { a.of[a.name] = value; return nil }
func (a argument) Type() string           { return "string" }

// request makes the request of a command line: the target first, if the command's
// use names one, then the arguments in the order of names.
func (c deskCommand) request(args []string, arguments map[string]string) (workspace.Request, error) {
	r := workspace.Request{Operation: c.operation, Arguments: map[string]string{}}
	words := strings.Fields(c.use)[1:]
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
	for i, name := range c.names {
		r.Arguments[name] = args[i]
	}
	maps.Copy(r.Arguments, arguments)
	return r, nil
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
