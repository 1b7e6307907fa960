package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// environmentOf reads PROJECT/ENVIRONMENT.
func environmentOf(text string) (console.OfEnvironment, error) {
	project, environment, ok := strings.Cut(text, "/")
	if !ok || project == "" || environment == "" {
		return console.OfEnvironment{}, errors.New("give PROJECT/ENVIRONMENT, such as shop/live")
	}
	return console.OfEnvironment{Project: project, Environment: environment}, nil
}

// ofEnvironment reads the first argument into an environment, once all arguments are checked.
func ofEnvironment(into *console.OfEnvironment, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		of, err := environmentOf(args[0])
		into.Project, into.Environment = of.Project, of.Environment
		return err
	}
}

func newCredentialsList() *cobra.Command {
	return question(&cobra.Command{
		Use:   "list",
		Short: "List the accepted push credentials, without their secrets",
		Long: exits("0 listed, 1 failed", `Lists every credential accepted by the running relay: its own generated ones, and the
static ones of its configuration. LAST FOUR are the last characters of the secret, as
the workspace shows them. LAST USED counts from the relay's start. A narrow terminal
leaves columns out; --json has all.`),
		Example: `  auditrelay credentials list --config relay.yaml
  auditrelay credentials list --data-dir /var/lib/auditrelay --json`,
	}, &relayFlags{}, orJSON("print a JSON array"), listOf((*console.Client).Credentials), printCredentials)
}

func printCredentials(p *page, list []credentials.Listed) {
	g := &grid{columns: []column{
		{title: "ENVIRONMENT", flex: true},
		{title: "KIND"},
		{title: "USER NAME", rank: 4},
		{title: "LAST FOUR"},
		{title: "SINCE", rank: 3},
		{title: "ACCEPTED UNTIL", rank: 2},
		{title: "LAST USED", rank: 1},
	}}
	for _, c := range list {
		kind := c.Kind
		if c.State != "" {
			kind += ", " + c.State
		}
		g.add(nil, plainCells(c.Project+"/"+c.Environment, kind, cmp.Or(c.Username, "(API key)"), cmp.Or(c.LastFour, "-"),
			moment(c.Created), moment(c.Until), moment(c.LastUsed))...)
	}
	p.grid(g)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// newRotate is one command at two places: below credentials, and below streaming.
func newRotate(below string) *cobra.Command {
	var of console.OfEnvironment
	return withFlags(question(&cobra.Command{
		Use:   "rotate PROJECT/ENVIRONMENT",
		Short: "Replace the generated credential of an environment now",
		Long: exits("0 rotated, 1 not rotated", `Generates a new credential, sets it in the environment's streaming config, and lists the
accepted credentials. The audit trail names you, your host and the --reason. The replaced
one stays valid for streaming.rotation_overlap; 'credentials revoke' ends the old one at
once.`),
		Example: "  auditrelay " + below + " rotate shop/live --config relay.yaml --reason CHG-18",
		Args:    ofEnvironment(&of, cobra.ExactArgs(1)),
	}, &relayFlags{}, orJSON("print the accepted credentials as a JSON array"), func(cmd *cobra.Command, client *console.Client, args []string) ([]credentials.Listed, error) {
		list, err := client.Rotate(cmd.Context(), of)
		if err != nil {
			err = fmt.Errorf("rotate the credential of %s: %w", args[0], err)
		}
		return list, err
	}, func(p *page, list []credentials.Listed) {
		p.line("the credential of %s/%s is rotated", of.Project, of.Environment)
		printCredentials(p, list)
	}), reasonFlag(&of.Reason))
}

func newCredentialsRevoke() *cobra.Command {
	var yes bool
	var of console.OfEnvironment
	output := orJSON("print a JSON object")
	return command(&cobra.Command{
		Use:   "revoke PROJECT/ENVIRONMENT LAST_FOUR",
		Short: "Reject a generated credential from now on",
		Long: exits("0 revoked, 1 not revoked, or no new one was set where one was due", `Rejects the generated credential of an environment from now on. LAST_FOUR are its last
characters, as 'credentials list' shows them; write -- before a LAST_FOUR with a leading
"-". If it was the current one, the relay sets a new one in the environment's streaming
config at once, and refuses pushes until then. It asks first, except with --yes, and writes an
audit trail entry before it acts, with your user name, host and --reason. Remove static
credentials in the configuration.`),
		Example: `  auditrelay credentials revoke shop/live wxyz --config relay.yaml --reason "leaked in CHG-18"
  auditrelay credentials revoke --config relay.yaml --yes -- shop/live -xyz`,
		Args: ofEnvironment(&of, cobra.ExactArgs(2)),
	}, &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
		of.LastFour = args[1]
		question := fmt.Sprintf("Reject the credential of %s ending in %s from now on?", args[0], printable(args[1]))
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		done, err := client.Revoke(cmd.Context(), of)
		if err != nil {
			return err
		}
		err = printAs(cmd.OutOrStdout(), output.isJSON(), done, func(p *page, done console.Revoked) {
			p.line("the credential of %s/%s ending in %s is revoked", done.Was.Project, done.Was.Environment, done.Was.LastFour)
			if done.Rotated {
				p.line("a new one is set")
			}
		})
		if done.NotRotated != "" {
			return fmt.Errorf("no new credential was set: %s", done.NotRotated)
		}
		return err
	}, yesFlag(&yes), reasonFlag(&of.Reason), &output)
}
