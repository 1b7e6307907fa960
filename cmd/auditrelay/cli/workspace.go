package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// deskFlags are the arguments of operations that are flags of the commands. The others follow the
// target, in their order.
var deskFlags = map[string]struct {
	about string
	bare  bool // it has no value
}{
	"vertical":                {about: "the kind of the project's customers: `B2B`, or another known to the API"},
	"types":                   {about: "the valid `TYPES`, separated by commas: LOGIN,SIGNUP; \"\" for none but the defaults"},
	"default_types":           {about: "the `TYPES` it becomes the default for; they are valid types, too"},
	"do_not_promote_defaults": {about: "promote no other URL if this one was the default", bare: true},
	"hostname":                {about: "the `HOST` of GRAFANA_LOKI, without scheme and path"},
	"username":                {about: "the `USER` name of GRAFANA_LOKI"},
	"site":                    {about: "the `SITE` of DATADOG: US, EU or another known to the API"},
}

// newWorkspace has a command for each operation: that of redirect_urls.set_types is
// `auditrelay workspace redirect-urls set-types`.
func newWorkspace() *cobra.Command {
	groups := map[string]*cobra.Command{"workspace": group("workspace")}
	for name, op := range workspace.Operations() {
		path := "workspace " + strings.NewReplacer(".", " ", "_", "-").Replace(name)
		c := deskCommand{Operation: op, request: workspace.Request{Operation: name, Arguments: map[string]string{}}}
		groupOf(path, groups).AddCommand(c.command(path))
	}
	return groups["workspace"]
}

// groupOf is the group of what is at a path. It is made if need be.
func groupOf(path string, groups map[string]*cobra.Command) *cobra.Command {
	path = path[:strings.LastIndex(path, " ")]
	if groups[path] == nil {
		groups[path] = group(path)
		groupOf(path, groups).AddCommand(groups[path])
	}
	return groups[path]
}

// deskCommand is a command to read the workspace, or to change it.
type deskCommand struct {
	workspace.Operation
	request workspace.Request // of the command line
}

func (c *deskCommand) command(path string) *cobra.Command {
	cmd := described(path)
	if c.Changes() {
		return c.change(cmd)
	}
	cmd.Long = cmd.Short + ".\n\nExit codes: 0 shown, 1 failed, 64 wrong usage."
	output := forms("table", "json", "yaml")
	output.about = "table, json (with the API's request_id, the resource in result) or yaml"
	return complete(cmd, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		out, err := client.ReadWorkspace(cmd.Context(), c.request)
		if err != nil {
			return err
		}
		return printOutcome(cmd.OutOrStdout(), output.value, out)
	}, takes(c.take), &output)
}

// change completes a command that changes the workspace.
func (c *deskCommand) change(cmd *cobra.Command) *cobra.Command {
	cmd.Long = cmd.Short + `.
It shows what will change, and asks. Without a question (--yes) it wants a --reason.
The audit trail gets an entry before and one after it.

Exit codes: 0 done, 1 not done or of unknown outcome, 64 wrong usage.`
	var secretFile string
	var consent consentFlags
	output := forms("table", "json", "yaml")
	output.about = "of the result: table, json (with the ids of the action and the request, the resource in result) or yaml"
	flags := append(c.flags(), takes(c.take), &consent, onOff(&consent.dryRun, "dry-run", "only show what would change"), &output)
	if c.Secret {
		flags = append(flags, text(&secretFile, "secret-file", "the password or API key: a `FILE`, or - for standard input"), needed{"secret-file"})
	}
	return complete(cmd, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) (err error) {
		if c.Secret {
			if c.request.Secret, err = readSecret(cmd, secretFile); err != nil {
				return err
			}
		}
		c.request.Reason = consent.reason
		return act(cmd, client, c.request, consent, output.value)
	}, flags...)
}

// flags are those of the operation's arguments.
func (c *deskCommand) flags() (flags []flagged) {
	for _, name := range slices.Concat(c.Needs, c.MayHave) {
		f, isFlag := deskFlags[name]
		if !isFlag {
			continue
		}
		flag := strings.ReplaceAll(name, "_", "-")
		set := func(value string) error { //nolint:unparam // as pflag wants it
			c.request.Arguments[name] = value
			return nil
		}
		flags = append(flags, flagFunc(func(all *pflag.FlagSet) {
			if f.bare {
				all.BoolFunc(flag, f.about, set)
			} else {
				all.Func(flag, f.about, set)
			}
		}))
		if slices.Contains(c.Needs, name) {
			flags = append(flags, needed{flag})
		}
	}
	return flags
}

// take reads the target and the arguments that are no flags.
func (c *deskCommand) take(cmd *cobra.Command, args []string) error {
	words := strings.Fields(cmd.Use)[1:]
	if len(args) != len(words) {
		return fmt.Errorf("give %s", strings.Join(words, " "))
	}
	switch c.Scope {
	case workspace.OfProject:
		c.request.Project, args = args[0], args[1:]
	case workspace.OfEnvironment:
		var err error
		if c.request.Project, c.request.Environment, err = environmentOf(args[0]); err != nil {
			return err
		}
		args = args[1:]
	}
	for _, name := range c.Needs {
		if _, isFlag := deskFlags[name]; !isFlag {
			c.request.Arguments[name], args = args[0], args[1:]
		}
	}
	return nil
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

// printOutcome prints an answer of the API: as JSON with its ids, and else the resource alone. In the
// form of a table, a list of objects is one, and anything else is YAML.
func printOutcome(w io.Writer, form string, out workspace.Outcome) error {
	switch {
	case form == "json":
		return say(w, "%s", indented(jsontext.Encode(out)))
	case len(out.Result) == 0:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(out.Result))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	list, _ := value.([]any)
	if columns := columnsOf(list); len(columns) > 0 && form != "yaml" {
		return show(w, list, func(p *page, list []any) { p.objects(columns, list) })
	}
	_, err := io.WriteString(w, asYAML(jsontext.Encode(value)))
	return err
}

// asYAML writes JSON, which is YAML too, in the form that people know. A value with text that
// could steer the terminal stays in the form of JSON, with YAML's escapes.
func asYAML(state json.RawMessage) string {
	var node yaml.Node
	err := yaml.Unmarshal(state, &node)
	plain(&node)
	if text, failed := yaml.Marshal(&node); err == nil && failed == nil && !bytes.ContainsFunc(text, plaintext.SteersLines) {
		return string(text)
	}
	var b bytes.Buffer
	_ = json.Indent(&b, state, "", "  ") // cannot fail: it was encoded from a value
	return plaintext.Escape(b.Bytes(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }) + "\n"
}

// plain takes away the braces and quotation marks, except for those of a list of plain values, which
// stands on one line. A text that would be read as something else keeps them.
func plain(node *yaml.Node) {
	node.Style = 0
	nested := func(inner *yaml.Node) bool { return inner.Kind != yaml.ScalarNode }
	if node.Kind == yaml.SequenceNode && !slices.ContainsFunc(node.Content, nested) {
		node.Style = yaml.FlowStyle
	}
	for _, inner := range node.Content {
		plain(inner)
	}
}

// objects adds a table of objects.
func (p *page) objects(columns []string, list []any) {
	p.row(strings.ToUpper(strings.Join(columns, "\t")))
	for _, element := range list {
		object, _ := element.(map[string]any)
		cells := make([]any, len(columns))
		for i, column := range columns {
			cells[i] = cell(object[column])
		}
		p.row(cells...)
	}
}

// columnsOf are the members of a list's objects, the nested ones left out where there
// are simple ones. It is empty for a list of other values.
func columnsOf(list []any) []string {
	seen := map[string]bool{}
	for _, element := range list {
		object, ok := element.(map[string]any)
		if !ok {
			return nil
		}
		for name, member := range object {
			if _, nested := member.(map[string]any); !nested {
				seen[printable(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// cell shows a value in a table: a list by its size, text cut.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case []any:
		return fmt.Sprintf("%d", len(v))
	case string:
		return short(v)
	}
	return short(fmt.Sprint(value))
}
