package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/relay"
)

// minutesShown bounds the minutes of a history for people.
const minutesShown = 60

func newSinksHistory() *cobra.Command {
	return question("sinks history", &relayFlags{}, orJSON("print a JSON object"), func(cmd *cobra.Command, client *console.Client, args []string) (relay.History, error) {
		return client.SinkHistory(cmd.Context(), console.OfSink{Name: args[0]})
	}, printHistory, takes(exactly(1, "the NAME of one sink, as 'auditrelay sinks list' shows it")))
}

func printHistory(p *page, h relay.History) {
	clock := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
	if len(h.Minutes) == 0 {
		p.line("Nothing was delivered, failed or was refused since %s UTC.", clock(h.Since))
		return
	}
	p.row("MINUTE (UTC)", "DELIVERED", "ATTEMPTS FAILED", "REFUSED")
	for _, m := range h.Minutes[max(0, len(h.Minutes)-minutesShown):] {
		p.row(m.Begun.UTC().Format("2006-01-02 15:04"), m.Delivered, m.Failed, m.Refused)
	}
	if len(h.Failures) == 0 {
		p.line("\nNo attempt has failed since %s UTC.", clock(h.Since))
		return
	}
	p.line("")
	g := &grid{columns: []column{{title: "ATTEMPTS", right: true}, {title: "LAST (UTC)"}, {title: "CLASS", rank: 1}, {title: "ERROR", flex: true}}}
	for _, f := range h.Failures {
		g.add(nil, plainCells(fmt.Sprint(f.Count), clock(f.Last), string(f.Class), f.Error)...)
	}
	p.grid(g)
}
