package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newConsoleOpen() *cobra.Command {
	return question(&cobra.Command{
		Use:   "open",
		Short: "Print a link into the console, valid once",
		Long: exits("0 printed, 1 no console is configured, or the relay cannot be asked",
			`Prints a link that logs a browser on this machine into the console of the running relay. It
is valid once, within five minutes. Whoever opens it is an operator there. The console needs
console.listen in the configuration.`),
		Example: `  auditrelay console open --config relay.yaml`,
		Args:    noArgs,
	}, &relayFlags{}, orJSON(`print JSON: {"url", "until"}`), func(cmd *cobra.Command, client *console.Client, _ []string) (console.Opened, error) {
		return client.OpenWeb(cmd.Context())
	}, func(p *page, opened console.Opened) {
		p.line("%s", opened.URL)
		p.line("valid once, until %s", opened.Until.UTC().Format(time.RFC3339))
	})
}

func newConsoleSessions() *cobra.Command {
	return under(&cobra.Command{
		Use:   "sessions",
		Short: "List who is logged in to the console, or log people out",
		Example: `  auditrelay console sessions list --config relay.yaml
  auditrelay console sessions revoke ZK3M7QXA --config relay.yaml`,
	}, newSessionsList(), newSessionsRevoke())
}

func newSessionsList() *cobra.Command {
	return question(&cobra.Command{
		Use:   "list",
		Short: "List who is logged in to the console in the browser",
		Long: exits("0 listed, 1 no console is configured, or the relay cannot be asked", `Lists the sessions in the browser, the newest first, with how each person is known and which
role it has. People with a client certificate need no session.`),
		Example: `  auditrelay console sessions list --config relay.yaml`,
		Args:    noArgs,
	}, &relayFlags{}, forms("table", "json"), listOf((*console.Client).Sessions), printSessions)
}

func newSessionsRevoke() *cobra.Command {
	return question(&cobra.Command{
		Use:   "revoke ID|all",
		Short: "Log a person out of the console, or everybody",
		Long: exits("0 logged out, 1 there is no such session, or the relay cannot be asked", `Ends a session in the browser now, or all of them. The person may log in again, unless the
provider refuses it. The audit trail keeps your user name and host, and who was logged out.`),
		Example: `  auditrelay console sessions revoke ZK3M7QXA --config relay.yaml
  auditrelay console sessions revoke all --config relay.yaml`,
		Args: cobra.ExactArgs(1),
	}, &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, args []string) ([]access.Session, error) {
		return client.RevokeSession(cmd.Context(), console.RevokeSession{ID: args[0]})
	}, func(p *page, was []access.Session) {
		p.line("%d logged out", len(was))
		printSessions(p, was)
	})
}

func printSessions(p *page, list []access.Session) {
	p.row("ID", "PERSON", "ROLE", "BEGUN", "LAST USED", "UNTIL")
	for _, s := range list {
		p.row(s.ID, printable(s.Person.String()), s.Role.String(), moment(s.Begun), moment(s.Seen), moment(s.Until))
	}
}
