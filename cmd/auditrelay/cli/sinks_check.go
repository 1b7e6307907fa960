package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/sinks"
)

func (p Program) newSinksCheck() *cobra.Command {
	var file string
	output := orJSON(`print a JSON array of {"sink", "result", "error", "findings"}`)
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Check whether deliveries would work, without delivering",
		Long: `Connects and authenticates to the destination of the sink NAME, or of every sink in
the configuration, like a delivery, and asks for its limits. It writes nothing there. No
relay need run; a running one is not disturbed. Each finding is a line. The last
line of a sink is the result: ok, or the first error of a delivery and the remedy. Each
sink's own timeout limits its check.

Without NAME it also asks the servers of an external journal (journal.url), as
(journal), for the guarantees behind their acknowledgements.

Exit codes: 0 all fine, 1 something would fail, 64 wrong usage.`,
		Example: `  auditrelay sinks check --config relay.yaml
  auditrelay sinks check kafka --config relay.yaml --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := p.Kinds.Config().Load(file)
			if err != nil {
				return err
			}
			chosen, err := choose(cfg.Sinks, args)
			if err != nil {
				return misuse{err}
			}
			var first []checkedSink
			if cfg.Journal.URL != "" && len(args) == 0 {
				first = append(first, checkJournal(cmd.Context(), cfg.Journal))
			}
			return p.checkSinks(cmd, first, chosen, cfg.Environments, output.isJSON())
		},
	}
	addConfigFlag(cmd, &file, "the configuration `FILE`")
	needConfig(cmd, &file)
	output.addTo(cmd)
	return cmd
}

// choose returns the sink named by args, or all.
func choose(all []config.Sink, args []string) ([]config.Sink, error) {
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
	return nil, fmt.Errorf("there is no sink %q in the configuration; it has: %s", args[0], strings.Join(names, ", "))
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

// checkSinks checks the chosen sinks, and prints their results after the given ones.
func (p Program) checkSinks(cmd *cobra.Command, results []checkedSink, chosen []config.Sink, environments []config.Environment, asJSON bool) error {
	for i := range chosen {
		results = append(results, p.checkSink(cmd.Context(), &chosen[i], environments))
	}
	failed := slices.ContainsFunc(results, func(r checkedSink) bool { return r.Result == "fails" })
	if err := printAs(cmd.OutOrStdout(), asJSON, results, printChecked); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	if failed {
		return errReported
	}
	return nil
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

func printChecked(w io.Writer, results []checkedSink) error {
	out := newTable(w, "SINK", "WHAT", "FOUND")
	for _, r := range results {
		for _, f := range r.Findings {
			out.row(r.Sink, f.What, f.Found)
		}
		text := r.Result
		if r.Error != "" {
			text += ": " + r.Error
		}
		out.row(r.Sink, "result", text)
	}
	return out.Flush()
}
