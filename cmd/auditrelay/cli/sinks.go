package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

func newSinksList() *cobra.Command {
	return question("sinks list", &relayFlags{}, orJSON("print a JSON array"), listOf((*console.Client).Sinks), printSinks)
}

func printSinks(p *page, list []console.Sink) {
	now := time.Now()
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
		pending, oldest, holds := positionTexts(s, now)
		replayable := "-"
		if s.Position != nil {
			replayable = ageText(now, s.Position.Kept)
		}
		g.add(sinkNotes(s), plainCells(s.Name, yesNo(s.Configured), pending, oldest, holds, replayable, fmt.Sprint(s.DeadLetters))...)
	}
	p.grid(g)
}

// positionTexts are a sink's pending records, the age of the oldest, and their size.
func positionTexts(s *console.Sink, now time.Time) (pending, oldest, holds string) {
	pending, oldest, holds = "no position", "-", "-"
	switch p := s.Position; {
	case p == nil:
	case p.Unknown != "":
		pending = "unknown"
	default:
		pending, oldest = fmt.Sprint(p.Pending), ageText(now, p.Oldest)
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

func newSinksRetire() *cobra.Command {
	var yes bool
	return command("sinks retire", &relayFlags{}, func(cmd *cobra.Command, args []string, client *console.Client) error {
		question, err := retirement(cmd, client, args[0])
		if err != nil {
			return err
		}
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		was, err := client.Retire(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "sink %s is retired: the journal no longer keeps %d records for it; its %d dead letters stay",
			was.Name, was.Position.Pending, was.DeadLetters)
	}, yesFlag(&yes), takes(exactly(1, "the NAME of one sink, as 'auditrelay sinks list' shows it")))
}

// retirement is the question before a sink is retired. The relay decides whether it
// may be.
func retirement(cmd *cobra.Command, client *console.Client, name string) (string, error) {
	list, err := client.Sinks(cmd.Context())
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.Name == name && s.Position != nil && !s.Configured {
			return fmt.Sprintf("Sink %s lacks %d records, and will never get them. Let them go?", name, s.Position.Pending), nil
		}
	}
	return fmt.Sprintf("Retire sink %s?", name), nil
}

func (p Program) newSinksCheck() *cobra.Command {
	output := orJSON(`print a JSON array of {"sink", "result", "error", "findings"}`)
	return question("sinks check", p.configured(), output, func(cmd *cobra.Command, cfg *config.Config, args []string) ([]checkedSink, error) {
		results := []checkedSink{}
		chosen, err := choose(cfg.Sinks, args, "the configuration; it has:")
		if err != nil {
			return nil, misuse{err}
		}
		if cfg.Journal.URL != "" && len(args) == 0 {
			results = append(results, checkJournal(cmd.Context(), cfg.Journal))
		}
		for i := range chosen {
			results = append(results, p.checkSink(cmd.Context(), &chosen[i], cfg.Environments))
		}
		return results, errReported.when(slices.ContainsFunc(results, func(r checkedSink) bool { return r.Result == "fails" }))
	}, printChecked, takes(cobra.MaximumNArgs(1)))
}

// choose returns the sink named by args, or all.
func choose(all []config.Sink, args []string, in string) ([]config.Sink, error) {
	if len(args) == 0 {
		return all, nil
	}
	var names []string
	for _, s := range all {
		if s.Name == args[0] {
			return []config.Sink{s}, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("there is no sink %q in %s %s", args[0], in, strings.Join(names, ", "))
}

// checkedSink is one sink's result in `sinks check --json`.
type checkedSink struct {
	Sink     string    `json:"sink"`
	Result   string    `json:"result"` // ok, fails, not checked
	Error    string    `json:"error,omitempty"`
	Findings []finding `json:"findings"`
}

type finding struct {
	What  string `json:"what"`
	Found string `json:"found"`
}

func (p Program) checkSink(ctx context.Context, s *config.Sink, environments []config.Environment) checkedSink {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("the check took longer than the sink's timeout of %v", s.Timeout.Round(time.Millisecond)))
	defer cancel()
	r := checkedSink{Sink: s.Name, Result: "ok", Findings: []finding{}}
	err := sinks.Check(ctx, *s, environments, sinks.Deps{Kinds: p.Kinds}, func(what, found string) {
		r.Findings = append(r.Findings, finding{oneLine(what), oneLine(found)})
	})
	switch {
	case errors.Is(err, sinks.ErrNoCheck):
		r.Result, r.Error = "not checked", err.Error()
	case err != nil:
		r.Result, r.Error = "fails", oneLine(err.Error())
	}
	return r
}

// oneLine keeps a peer's text from garbling the terminal.
func oneLine(text string) string { return plaintext.Line(text, maxFinding) }

// maxFinding bounds a finding, in characters.
const maxFinding = 2000

func printChecked(p *page, results []checkedSink) {
	p.row("SINK", "WHAT", "FOUND")
	for _, r := range results {
		for _, f := range r.Findings {
			p.row(r.Sink, f.What, f.Found)
		}
		text := r.Result
		if r.Error != "" {
			text += ": " + r.Error
		}
		p.row(r.Sink, "result", text)
	}
}

// promisesTimeout bounds a check of the journal's servers.
const promisesTimeout = 30 * time.Second

// askJournal asks the servers of an external journal for their guarantees. For an
// embedded one it does nothing.
func askJournal(ctx context.Context, cfg config.Journal) ([]cluster.Promise, error) {
	if cfg.URL == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, promisesTimeout)
	defer cancel()
	return cluster.Check(ctx, cfg)
}

// checkJournal is askJournal as `sinks check` prints it.
func checkJournal(ctx context.Context, cfg config.Journal) checkedSink {
	r := checkedSink{Sink: "(journal)", Result: "ok", Findings: []finding{}}
	promises, err := askJournal(ctx, cfg)
	for _, p := range promises {
		text := p.Found
		if p.Verdict != cluster.Kept {
			text = p.Verdict + ": " + text
		}
		r.Findings = append(r.Findings, finding{oneLine(p.What), oneLine(text)})
	}
	if err == nil {
		err = cluster.Refusal(promises)
	}
	if err != nil {
		r.Result, r.Error = "fails", oneLine(err.Error())
	}
	return r
}

// journalProblems is askJournal as `config check --api` prints it.
func journalProblems(ctx context.Context, file string, cfg config.Journal) (errs, warnings []config.Problem) {
	promises, err := askJournal(ctx, cfg)
	if err != nil {
		errs = append(errs, config.Problem{File: file, Field: "journal.url", Reason: oneLine(err.Error())})
	}
	for _, p := range promises {
		problem := config.Problem{File: file, Field: "journal", Reason: oneLine(p.What + ": " + p.Found)}
		switch p.Verdict {
		case cluster.Broken:
			errs = append(errs, problem)
		case cluster.Weak:
			warnings = append(warnings, problem)
		}
	}
	return errs, warnings
}

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
