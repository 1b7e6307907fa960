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
func environmentOf(text string) (project, environment string, err error) {
	project, environment, _ = strings.Cut(text, "/")
	if project == "" || environment == "" {
		err = errors.New("give PROJECT/ENVIRONMENT, such as shop/live")
	}
	return project, environment, err
}

// ofEnvironment reads the first argument into an environment, once all arguments are checked.
func ofEnvironment(into *console.OfEnvironment, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) (err error) {
		if err = check(cmd, args); err == nil {
			into.Project, into.Environment, err = environmentOf(args[0])
		}
		return err
	}
}

func newCredentialsList() *cobra.Command {
	return question("credentials list", &relayFlags{}, orJSON("print a JSON array"), listOf((*console.Client).Credentials), printCredentials)
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
	output := orJSON("print the accepted credentials as a JSON array")
	return question(below+" rotate", &relayFlags{}, output, func(cmd *cobra.Command, client *console.Client, args []string) ([]credentials.Listed, error) {
		list, err := client.Rotate(cmd.Context(), of)
		if err != nil {
			err = fmt.Errorf("rotate the credential of %s: %w", args[0], err)
		}
		return list, err
	}, func(p *page, list []credentials.Listed) {
		p.line("the credential of %s/%s is rotated", of.Project, of.Environment)
		printCredentials(p, list)
	}, reasonFlag(&of.Reason), takes(ofEnvironment(&of, exactly(1, "PROJECT/ENVIRONMENT"))))
}

func newCredentialsRevoke() *cobra.Command {
	var yes bool
	var of console.OfEnvironment
	output := orJSON("print a JSON object")
	return command("credentials revoke", &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
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
	}, yesFlag(&yes), reasonFlag(&of.Reason), &output, takes(ofEnvironment(&of, exactly(2, "PROJECT/ENVIRONMENT and LAST_FOUR, as 'credentials list' shows them"))))
}
