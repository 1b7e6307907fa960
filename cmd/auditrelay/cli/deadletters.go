package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/sinks/file"
)

func newDeadletters() *cobra.Command {
	cmd := group("deadletters", newDeadlettersList(), newDeadlettersShow(), newDeadlettersReplay(), newDeadlettersExport(), newDeadlettersDiscard())
	cmd.Aliases = []string{"deadletter", "dl"}
	return cmd
}

// letterFlags choose dead letters.
type letterFlags struct {
	filter       deadletters.Filter
	since, until timeFlag
}

func (f *letterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Sink, "sink", "", "only those of the sink `NAME`")
	flags.Var(&f.since, "since", "only those refused at or after `TIME`: RFC 3339, or how long ago (2h)")
	flags.Var(&f.until, "until", "only those refused before `TIME`: RFC 3339, or how long ago (2h)")
	flags.StringVar(&f.filter.Reason, "reason", "", "only those whose reason holds `TEXT`, in any case")
	flags.StringVar(&f.filter.ID, "id", "", "only those of the event `ID`")
	flags.StringVar(&f.filter.Project, "project", "", "only those of the project `SLUG`")
	flags.StringVar(&f.filter.Environment, "environment", "", "only those of the environment `SLUG`")
	flags.IntVar(&f.filter.Limit, "limit", 0, "no more than `N`, the oldest first (0: all)")
	before(cmd, func() error {
		f.filter.Since, f.filter.Until = f.since.time, f.until.time
		return nil
	})
}

func newDeadlettersList() *cobra.Command {
	var letters letterFlags
	output := orJSON("print one JSON object per line")
	return command("deadletters list", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request := console.ListLetters{Filter: letters.filter}
		if output.isJSON() {
			return client.Letters(cmd.Context(), request, func(l *console.Letter) error { return encodeLine(cmd.OutOrStdout(), l) })
		}
		p, count := newPage(cmd.OutOrStdout()), 0
		err := client.Letters(cmd.Context(), request, func(l *console.Letter) error {
			if count++; count == 1 {
				p.row("NUMBER", "REFUSED", "SINK", "ATTEMPTS", "ENVIRONMENT", "EVENT", "REASON")
			}
			reason := l.Reason
			if l.Damage != "" {
				reason = "(unreadable: " + l.Damage + ") " + reason
			}
			p.row(l.Sequence, l.Refused.UTC().Format(time.RFC3339), l.Sink, l.Attempts, placeOf(l.Project, l.Environment), printable(l.ID), short(reason))
			return nil
		})
		if err != nil {
			return err
		}
		if count == 0 {
			p.line("no dead letters")
		}
		return p.end()
	}, &letters, &output)
}

// short bounds a text for a table.
func short(text string) string {
	const limit = 100
	if runes := []rune(printable(text)); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return printable(text)
}

func newDeadlettersShow() *cobra.Command {
	output := orJSON("print a JSON object")
	var number uint64
	return command("deadletters show", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
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
		return show(cmd.OutOrStdout(), found, showLetter)
	}, &output, takes(cobra.MatchAll(exactly(1, "the NUMBER of one dead letter, as 'deadletters list' shows it"), func(_ *cobra.Command, args []string) (err error) {
		if number, err = strconv.ParseUint(args[0], 10, 64); err != nil || number == 0 {
			return fmt.Errorf("%q is not the number of a dead letter, as 'deadletters list' shows it", args[0])
		}
		return nil
	})))
}

func showLetter(p *page, l *console.Letter) {
	p.field("number", strconv.FormatUint(l.Sequence, 10))
	p.field("sink", l.Sink)
	p.field("refused", l.Refused.UTC().Format(time.RFC3339Nano))
	p.field("reason", l.Reason)
	p.field("attempts", strconv.Itoa(l.Attempts))
	p.field("unreadable", l.Damage)
	event := l.Event
	event.Attributes(func(name, value string) bool {
		p.field(name, value)
		return true
	})
	p.field("content type", l.ContentType)
	for _, label := range l.Labels {
		p.field("label", label.Name+"="+label.Value)
	}
	p.field("body", fmt.Sprintf("%d bytes", len(l.Body)))
	if utf8.Valid(l.Body) {
		p.line("\n%s", plaintext.JSON(l.Body))
	} else {
		p.line("\n%q", l.Body)
	}
}

func newDeadlettersExport() *cobra.Command {
	var letters letterFlags
	var path string
	return command("deadletters export", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		events, damaged := 0, 0
		err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error {
			return client.Letters(cmd.Context(), console.ListLetters{Filter: letters.filter, Bodies: true}, func(l *console.Letter) error {
				if l.Damage != "" {
					damaged++
					return nil
				}
				events++
				event := l.Event
				_, err := w.Write(file.AppendLine(nil, &event))
				return err
			})
		})
		if err != nil {
			return err
		}
		_ = say(cmd.ErrOrStderr(), "%d events exported", events)
		if damaged > 0 {
			return fmt.Errorf("%d dead letters cannot be read, and were left out; 'deadletters list' names them", damaged)
		}
		return nil
	}, &letters, flagFunc(func(flags *pflag.FlagSet) {
		flags.StringVarP(&path, "output", "o", "", "write to a new `FILE` instead of standard output")
	}))
}

// writeTo lets write fill the file at path, readable by its owner alone, or
// otherwise stdout.
func writeTo(path string, stdout io.Writer, write func(io.Writer) error) error {
	target := stdout
	if isTerminal(fileOf(stdout)) {
		target = &inertWriter{to: stdout}
	}
	closing := func() error { return nil }
	if path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
		target, closing = f, func() error { return errors.Join(f.Sync(), f.Close()) }
	}
	buffered := bufio.NewWriterSize(target, 64<<10)
	err := write(buffered)
	err = errors.Join(err, buffered.Flush(), closing())
	if info, failed := os.Stat(path); err != nil && failed == nil && path != "" && info.Size() == 0 {
		_ = os.Remove(path) // else the next try finds that it exists
	}
	return err
}

func newDeadlettersReplay() *cobra.Command {
	var letters letterFlags
	var to string
	var dryRun bool
	return command("deadletters replay", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		p, err := watched(cmd, client.ReplayLetters, console.ReplayLetters{Filter: letters.filter, To: to, DryRun: dryRun})
		if err == nil && dryRun {
			return wouldChange(cmd.OutOrStdout(), p, "replayed")
		}
		return lettersReplayed(cmd.OutOrStdout(), p, err)
	}, &letters, text(&to, "to", "deliver to the sink `NAME` instead of their own"), onOff(&dryRun, "dry-run", "only print the counts"))
}

// wouldChange prints the result of a dry run.
func wouldChange(w io.Writer, p *console.Progress, what string) error {
	return show(w, p, func(out *page, p *console.Progress) {
		out.line("%d dead letters would be %s", p.Total, what)
		for _, sink := range slices.Sorted(maps.Keys(p.Sinks)) {
			out.line("  %s: %d", sink, p.Sinks[sink])
		}
	})
}

// lettersReplayed prints the counts, of an interrupted replay too.
func lettersReplayed(w io.Writer, p *console.Progress, err error) error {
	if p.Unit != "" {
		told := say(w, "%d dead letters: %d delivered, %d refused again, %d gone meanwhile, %d unreadable",
			p.Total, p.Delivered, p.Refused, p.Missing, p.Damaged)
		if told != nil {
			return told
		}
	}
	return notAll(p, err, "undelivered letters stay among the dead letters")
}

func newDeadlettersDiscard() *cobra.Command {
	var letters letterFlags
	var yes, dryRun bool
	return command("deadletters discard", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		request := console.DiscardLetters{Filter: letters.filter, DryRun: true}
		p, err := watched(cmd, client.DiscardLetters, request)
		if err != nil {
			return err
		}
		if err := wouldChange(cmd.OutOrStdout(), p, "discarded"); err != nil || dryRun || p.Total == 0 {
			return err
		}
		if err := confirm(cmd, yes, "Remove them for good?"); err != nil {
			return err
		}
		// Letters since the question are not meant.
		request.DryRun, request.Filter.Through = false, p.Last
		p, err = watched(cmd, client.DiscardLetters, request)
		return errors.Join(say(cmd.OutOrStdout(), "%d dead letters discarded", p.Removed), err)
	}, &letters, yesFlag(&yes), onOff(&dryRun, "dry-run", "only print the counts"))
}

// confirm asks on the terminal; with yes it need not.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), question)
		return errors.New("nothing was done: give --yes without a terminal to ask at")
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}
