package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

func newTap() *cobra.Command {
	t := tapping{output: forms("text", "json")}
	var colour colourFlag
	return command("tap", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		file := fileOf(cmd.OutOrStdout())
		t.out, t.told, t.brush, t.width = bufio.NewWriter(cmd.OutOrStdout()), cmd.ErrOrStderr(), colour.brush(file), tableWidth(cmd.OutOrStdout())
		return t.run(cmd.Context(), client)
	}, &colour, &t.output, text(&t.request.Sink, "sink", "show events as the sink `NAME` gets them"), text(&t.request.Match, "match", "show events for which the expression `CEL` holds"), flagFunc(func(flags *pflag.FlagSet) {
		flags.IntVar(&t.limit, "limit", 0, "end after `N` events; 0: never")
	}), check(func() error { return checkMatch(t.request.Match) }))
}

// checkMatch checks the expression of --match, if there is one.
func checkMatch(expression string) error {
	if expression == "" {
		return nil
	}
	if _, err := match.Compile(expression); err != nil {
		return fmt.Errorf("--match: %w", err)
	}
	return nil
}

// tapping prints live events.
type tapping struct {
	request console.Tap
	output  outputFlag
	limit   int // 0: none
	width   int // of a line
	brush   brush
	out     *bufio.Writer
	told    io.Writer // of missed events

	shown  int
	counts console.TapCounts
	said   time.Time // when missed events were told of last
	missed int64     // told of then
}

// errLimit ends a tap after its last event.
var errLimit = errors.New("all wanted events are shown")

// missedEvery is the time between two lines about missed events.
const missedEvery = 10 * time.Second

func (t *tapping) run(ctx context.Context, client *console.Client) error {
	err := client.Tap(ctx, t.request, t.show, t.count)
	t.say()
	if ctx.Err() != nil || errors.Is(err, errLimit) {
		err = nil // the wanted end
	}
	return err
}

func (t *tapping) show(one *console.Tapped) error {
	e, err := one.Event()
	if err != nil {
		return err
	}
	if t.output.isJSON() {
		_, err = fmt.Fprintf(t.out, "%s\n", plaintext.JSON(one.CloudEvent))
	} else {
		_, err = fmt.Fprintln(t.out, t.line(&e))
	}
	if err = errors.Join(err, t.out.Flush()); err != nil {
		return err
	}
	if t.shown++; t.shown == t.limit {
		return errLimit
	}
	return nil
}

// line is an event for people.
func (t *tapping) line(e *relay.Event) string {
	at := e.Received.UTC().Format("15:04:05.000")
	origin := placeOf(e.Project, e.Environment)
	body := bodyText(e.Body) + "  " + labelsText(e.Labels)
	left := t.width
	room := func(text string) string {
		runes := []rune(text)
		if len(runes) > left {
			runes = append(runes[:max(0, left-1)], '…')[:left]
		}
		left -= len(runes)
		return string(runes)
	}
	b := t.brush
	return b.paint(inkFaint, room(at+"  ")) + b.paint(inkStrong, room(origin+"  ")) + b.paint(inkGood, room(e.Type+"  ")) +
		b.paint(inkFaint, room(e.ID+"  ")) + b.paint(inkPlain, room(body))
}

// count takes the relay's counts.
func (t *tapping) count(now *console.TapCounts) {
	t.counts = *now
	if missed := now.Dropped + now.SkippedRecords; missed > t.missed && time.Since(t.said) >= missedEvery {
		t.missed, t.said = missed, time.Now()
		t.say()
	}
}

// say prints the counts of events not shown.
func (t *tapping) say() {
	var texts []string
	for _, c := range []struct {
		n    int64
		what string
	}{
		{t.counts.Dropped, "events passed unseen, as they came faster than they were printed"},
		{t.counts.SkippedRecords, "records of events passed unseen, as they came faster than they were read"},
		{t.counts.LeftOut, "events were left out by the sink's match"},
		{t.counts.Withheld, "events were withheld from the sink: its dead letters have them"},
		{t.counts.Failed, "events were not shown, as --match failed for them"},
	} {
		if c.n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(texts) > 0 {
		_, _ = fmt.Fprintln(t.told, strings.Join(texts, "; "))
	}
}
