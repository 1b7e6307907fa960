package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
)

func newDeadlettersShow() *cobra.Command {
	output := orJSON("print a JSON object")
	var number uint64
	return command(&cobra.Command{
		Use:   "show NUMBER",
		Short: "Show one dead letter, with its body",
		Long: `Shows one dead letter: attributes, labels, the sink's reason, the number of attempts, and
the body. NUMBER is as list shows it. Labels and body are as received: they include
values the sink's redact section takes out, perhaps personal data. In the body, an escape
such as \u001b stands for a character that would steer the terminal; --json has its bytes
in base64.

Exit codes: 0 shown, 1 it is not there, or failed, 64 wrong usage.`,
		Example: `  auditrelay deadletters show 17 --config relay.yaml
  auditrelay deadletters show 17 --config relay.yaml --json | jq -r '.body_base64 | @base64d'`,
		Args: cobra.MatchAll(exactly(1, "the NUMBER of one dead letter, as 'deadletters list' shows it"), func(_ *cobra.Command, args []string) (err error) {
			if number, err = strconv.ParseUint(args[0], 10, 64); err != nil || number == 0 {
				return fmt.Errorf("%q is not the number of a dead letter, as 'deadletters list' shows it", args[0])
			}
			return nil
		}),
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		var found *console.Letter
		err := client.Letters(cmd.Context(), console.ListLetters{Filter: deadletters.Filter{Sequence: number}, Bodies: true},
			func(l *console.Letter) error { found = l; return nil })
		switch {
		case err != nil:
			return err
		case found == nil:
			return fmt.Errorf("there is no dead letter %d; it was replayed or discarded, or never was", number)
		case output.isJSON():
			return encodeLine(cmd.OutOrStdout(), found)
		}
		return showLetter(cmd.OutOrStdout(), found)
	}, &output)
}

func showLetter(w io.Writer, l *console.Letter) error {
	out := newTable(w)
	out.field("number", strconv.FormatUint(l.Sequence, 10))
	out.field("sink", l.Sink)
	out.field("refused", l.Refused.UTC().Format(time.RFC3339Nano))
	out.field("reason", l.Reason)
	out.field("attempts", strconv.Itoa(l.Attempts))
	out.field("unreadable", l.Damage)
	event := l.Event()
	event.Attributes(func(name, value string) bool {
		out.field(name, value)
		return true
	})
	out.field("content type", l.ContentType)
	for _, label := range l.Labels {
		out.field("label", label.Name+"="+label.Value)
	}
	out.field("body", fmt.Sprintf("%d bytes", len(l.Body)))
	if err := out.Flush(); err != nil {
		return err
	}
	if !utf8.Valid(l.Body) {
		_, err := fmt.Fprintf(w, "\n%q\n", l.Body)
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", escaped(l.Body))
	return err
}
