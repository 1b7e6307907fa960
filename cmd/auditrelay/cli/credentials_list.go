package cli

import (
	"cmp"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

func newCredentialsList() *cobra.Command {
	return question(&cobra.Command{
		Use:   "list",
		Short: "List the accepted push credentials, without their secrets",
		Long: `Lists every credential accepted by the running relay: its own generated ones, and the
static ones of its configuration. LAST FOUR are the last characters of the secret, as
the workspace shows them. LAST USED counts from the relay's start. A narrow terminal
leaves columns out; --json has all.

Exit codes: 0 listed, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay credentials list --config relay.yaml
  auditrelay credentials list --data-dir /var/lib/auditrelay --json`,
	}, &relayFlags{}, orJSON("print a JSON array"), listOf((*console.Client).Credentials), printCredentials)
}

func printCredentials(w io.Writer, list []credentials.Listed) error {
	return printGrid(w, credentialsTable(list), tableWidth(w))
}

func credentialsTable(list []credentials.Listed) *grid {
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
	return g
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
