package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
)

// plainWidth is the width of a screen outside a terminal.
const plainWidth = 120

// statusCommand is `auditrelay status`.
type statusCommand struct {
	output   outputFlag
	colour   colourFlag
	watch    bool
	interval time.Duration
}

func newStatus() *cobra.Command {
	var c statusCommand
	c.output = forms("table", "json")
	cmd := command(&cobra.Command{
		Use:   "status",
		Short: "Show on one screen whether every event log flows, to where, and how late",
		Long: `Shows on one screen whether each environment's event log really flows, to where, how late,
with how many lost events, and who changed it. The first line is the verdict. Trouble comes
first, with its reason and its remedy.

Of an environment:
  STATE     ` + strings.Join(wrap(health.Help(), 76), "\n            ") + `
  SINCE     how long it has been so
  PUSHED    how long ago its last push came
  EV/S      its events per second, over the last minute; USUAL: at this hour of the week
  LATE      99 % of its events come within this time
  LOST      about how many events its last gaps lost
  DECLARED  the stream's status at the management API; with a ? it is an old one
Of a sink:
  BEHIND    events it has not acknowledged yet
  OLDEST    how long the first of them has waited
  DELIVERED how long ago it last acknowledged events
  LETTERS   its dead letters: events it refused, waiting for a person

CHANGES are the newest ones of the streams and settings; 'auditrelay trail list' has all.
--watch draws the screen again each --interval, with sparklines of the events per second,
until q or Ctrl-C. With --output json, it prints one line of JSON each time.

Exit codes: 0 nothing is known to be wrong, 1 the relay cannot be asked, 2 something is
wrong, 64 wrong usage. --watch ends with 0; with --output json, with 1 when the relay
does not answer.`,
		Example: `  auditrelay status --config relay.yaml
  auditrelay status --config relay.yaml --watch
  auditrelay status --data-dir /var/lib/auditrelay --output json | jq -r '.verdict.troubles[]'
  auditrelay status --config relay.yaml > /dev/null || echo "auditrelay needs somebody"`,
	}, &relayFlags{}, c.run, &c.output, &c.colour, flagFunc(func(flags *pflag.FlagSet) {
		flags.BoolVarP(&c.watch, "watch", "w", false, "go on until q or Ctrl-C")
		flags.DurationVar(&c.interval, "interval", time.Second, "`TIME` between two drawings")
	}))
	before(cmd, func() error { return c.check(cmd) })
	return cmd
}

func (c *statusCommand) check(cmd *cobra.Command) error {
	switch {
	case c.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval %s: give 100ms or more", c.interval)
	case !c.watch && cmd.Flags().Changed("interval"):
		return errors.New("--interval needs --watch")
	case c.watch && c.output.value == "table" && !isTerminal(fileOf(cmd.OutOrStdout())):
		return errors.New("--watch needs a terminal; elsewhere, give --output json too")
	}
	return nil
}

func fileOf(w io.Writer) *os.File {
	file, _ := w.(*os.File)
	return file
}

func (c *statusCommand) run(cmd *cobra.Command, _ []string, client *console.Client) error {
	out := cmd.OutOrStdout()
	switch {
	case c.watch && c.output.isJSON():
		return c.follow(cmd.Context(), client, out)
	case c.watch:
		w := watcher{client: client, out: fileOf(out), keys: os.Stdin, brush: c.colour.brush(fileOf(out)), interval: c.interval}
		return w.run(cmd.Context())
	}
	sections, err := client.Status(cmd.Context())
	if err != nil {
		return err
	}
	s := screen{status: readStatus(sections)}
	if c.output.isJSON() {
		err = printStatusJSON(out, sections, true)
	} else {
		lines := s.draw(c.colour.brush(fileOf(out)), widthOf(fileOf(out)))
		_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	}
	if err == nil && judgeStatus(&s.status).Verdict == verdictTrouble {
		return errTrouble
	}
	return err
}

// follow prints a line of JSON each interval, until ctx ends.
func (c *statusCommand) follow(ctx context.Context, client *console.Client, out io.Writer) error {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		sections, err := client.Status(ctx)
		if err == nil {
			err = printStatusJSON(out, sections, false)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printStatusJSON adds the verdict as a section.
func printStatusJSON(out io.Writer, sections map[string]json.RawMessage, pretty bool) error {
	s := readStatus(sections)
	raw, err := json.Marshal(judgeStatus(&s))
	if err == nil {
		sections["verdict"] = raw
		raw, err = json.Marshal(sections)
	}
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	text := string(raw)
	if pretty {
		text = indented(raw)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func widthOf(file *os.File) int {
	if file != nil {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return plainWidth
}
