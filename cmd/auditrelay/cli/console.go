package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newConsoleOpen() *cobra.Command {
	return question(&cobra.Command{
		Use:   "open",
		Short: "Print a link into the console, valid once",
		Long: exits("0 printed, 1 no console is configured, or the relay cannot be asked",
			`Prints a link that logs a browser on this machine into the console of the running relay. It
is valid once, within five minutes. The console needs console.listen in the configuration.`),
		Example: `  auditrelay console open --config relay.yaml`,
		Args:    noArgs,
	}, &relayFlags{}, orJSON(`print JSON: {"url", "until"}`), func(cmd *cobra.Command, client *console.Client, _ []string) (console.Opened, error) {
		return client.OpenWeb(cmd.Context())
	}, func(p *page, opened console.Opened) {
		p.line("%s", opened.URL)
		p.line("valid once, until %s", opened.Until.UTC().Format(time.RFC3339))
	})
}
