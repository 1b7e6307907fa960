package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newDeadlettersList() *cobra.Command {
	var letters letterFlags
	output := orJSON("print one JSON object per line")
	return command(&cobra.Command{
		Use:   "list",
		Short: "List dead letters, without their bodies",
		Long: `Lists dead letters, the oldest first, without their bodies.

Exit codes: 0 listed (none is fine), 1 failed, 64 wrong usage.`,
		Example: `  auditrelay deadletters list --config relay.yaml
  auditrelay deadletters list --data-dir /var/lib/auditrelay --sink kafka --since 24h
  auditrelay deadletters list --config relay.yaml --json | jq -r .reason | sort | uniq -c`,
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		list := tableOf(cmd.OutOrStdout())
		if output.isJSON() {
			list = linesOf(cmd.OutOrStdout())
		}
		if err := client.Letters(cmd.Context(), console.ListLetters{Filter: letters.get()}, list.add); err != nil {
			return err
		}
		return list.end()
	}, &letters, &output)
}

// letterList prints a list of letters.
type letterList struct {
	add func(*console.Letter) error
	end func() error
}

func linesOf(w io.Writer) letterList {
	return letterList{
		add: func(l *console.Letter) error { return encodeLine(w, l) },
		end: func() error { return nil },
	}
}

func tableOf(w io.Writer) letterList {
	out := newTable(w)
	count := 0
	return letterList{
		add: func(l *console.Letter) error {
			if count++; count == 1 {
				out.row("NUMBER", "REFUSED", "SINK", "ATTEMPTS", "ENVIRONMENT", "EVENT", "REASON")
			}
			reason := l.Reason
			if l.Damage != "" {
				reason = "(unreadable: " + l.Damage + ") " + reason
			}
			out.row(l.Sequence, l.Refused.UTC().Format(time.RFC3339), l.Sink, l.Attempts, placeOf(l.Project, l.Environment), printable(l.ID), short(reason))
			return nil
		},
		end: func() error {
			if count == 0 {
				out.row("no dead letters")
			}
			return out.Flush()
		},
	}
}

// short bounds a text for a table.
func short(text string) string {
	const limit = 100
	if runes := []rune(printable(text)); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return printable(text)
}
