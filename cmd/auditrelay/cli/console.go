package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newConsoleOpen() *cobra.Command {
	return question("console open", &relayFlags{}, orJSON(`print JSON: {"url", "until"}`), func(cmd *cobra.Command, client *console.Client, _ []string) (console.Opened, error) {
		return client.OpenWeb(cmd.Context())
	}, func(p *page, opened console.Opened) {
		p.line("%s", opened.URL)
		p.line("valid once, until %s", opened.Until.UTC().Format(time.RFC3339))
	}, takes(noArgs))
}

func newSessionsList() *cobra.Command {
	return question("console sessions list", &relayFlags{}, forms("table", "json"), listOf((*console.Client).Sessions), printSessions, takes(noArgs))
}

func newSessionsRevoke() *cobra.Command {
	return question("console sessions revoke", &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, args []string) ([]access.Session, error) {
		return client.RevokeSession(cmd.Context(), console.RevokeSession{ID: args[0]})
	}, func(p *page, was []access.Session) {
		p.line("%d logged out", len(was))
		printSessions(p, was)
	}, takes(exactly(1, "the ID of one session, as 'console sessions list' shows it, or all")))
}

func printSessions(p *page, list []access.Session) {
	p.row("ID", "PERSON", "ROLE", "BEGUN", "LAST USED", "UNTIL")
	for _, s := range list {
		p.row(s.ID, printable(s.Person.String()), s.Role.String(), moment(s.Begun), moment(s.Seen), moment(s.Until))
	}
}
