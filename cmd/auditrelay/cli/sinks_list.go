package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newSinksList() *cobra.Command {
	return question(&cobra.Command{
		Use:   "list",
		Short: "List each sink's lag, and the space it holds in the journal",
		Long: `Lists every sink with a configuration or a position in the journal: its unacknowledged
records, the age of the oldest, about how much disk they take, how far back a replay
reaches, and its dead letters. A record holds one event or many. The journal keeps the
events a sink lacks, even for a sink no longer configured, until you retire it. While a
position is unknown, nothing is trimmed. Below a sink in trouble stand the reason and what
to do. A narrow terminal leaves columns out; --json has all.

Exit codes: 0 listed, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay sinks list --config relay.yaml
  auditrelay sinks list --data-dir /var/lib/auditrelay --json`,
	}, &relayFlags{}, orJSON("print a JSON array"), listOf((*console.Client).Sinks), printSinks)
}

func printSinks(w io.Writer, list []console.Sink) error {
	return printGrid(w, sinksTable(list, time.Now()), tableWidth(w))
}

func sinksTable(list []console.Sink, now time.Time) *grid {
	g := &grid{columns: []column{
		{title: "SINK", flex: true},
		{title: "CONFIGURED", rank: 3},
		{title: "PENDING RECORDS", right: true},
		{title: "OLDEST", right: true},
		{title: "HOLDS", right: true, rank: 1},
		{title: "REPLAYABLE", right: true, rank: 2},
		{title: "DEAD LETTERS", right: true},
	}}
	for i := range list {
		s := &list[i]
		configured := "yes"
		if !s.Configured {
			configured = "no"
		}
		pending, oldest, holds := positionTexts(s, now)
		replayable := "-"
		if s.Position != nil && !s.Position.Kept.IsZero() {
			replayable = max(0, now.Sub(s.Position.Kept)).Round(time.Second).String()
		}
		g.add(sinkNotes(s), plainCells(s.Name, configured, pending, oldest, holds, replayable, fmt.Sprint(s.DeadLetters))...)
	}
	return g
}

// positionTexts are a sink's pending records, the age of the oldest, and their size.
func positionTexts(s *console.Sink, now time.Time) (pending, oldest, holds string) {
	pending, oldest, holds = "no position", "-", "-"
	switch p := s.Position; {
	case p == nil:
	case p.Unknown != "":
		pending = "unknown"
	default:
		pending = fmt.Sprint(p.Pending)
		if !p.Oldest.IsZero() {
			oldest = max(0, now.Sub(p.Oldest)).Round(time.Second).String()
		}
		if p.Pending > 0 {
			holds = "~" + sizeText(p.HeldBytes)
		}
	}
	return pending, oldest, holds
}

func sizeText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
