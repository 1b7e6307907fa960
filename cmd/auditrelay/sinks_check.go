package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/sinks"
)

func newSinksCheck() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Check that a delivery to a sink, or to each, could work",
		Long: `Connects and authenticates to the destination of the sink NAME, or of every sink of
the configuration, as a delivery would, and asks for its limits. Nothing is written
there, and no relay need run; one that runs is not disturbed. Each finding is a
line; the last line of a sink says whether a delivery could work, or the first error
that it would meet and what to do. Each sink has its own timeout as time limit.

Exit codes: 0 all fine, 1 something would fail, 2 wrong usage.`,
		Example: `  auditrelay sinks check --config relay.yaml
  auditrelay sinks check kafka --config relay.yaml --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := config.Load(file)
			if err != nil {
				return &failure{err}
			}
			chosen, err := choose(cfg.Sinks, args)
			if err != nil {
				return err // of usage
			}
			return checkSinks(cmd, chosen, asJSON)
		},
	}
	addConfigFlag(cmd, &file, "the configuration `FILE`")
	needConfig(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, `print a JSON array of {"sink", "result", "error", "findings"}`)
	return cmd
}

// choose returns the sink that args name, or all.
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
	return nil, fmt.Errorf("there is no sink %q in the configuration, which has: %s", args[0], strings.Join(names, ", "))
}

// checkedSink is what `sinks check --json` prints of a sink.
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

func checkSinks(cmd *cobra.Command, chosen []config.Sink, asJSON bool) error {
	results, failed := make([]checkedSink, 0, len(chosen)), false
	for i := range chosen {
		r := checkSink(cmd.Context(), &chosen[i])
		failed = failed || r.Result == "fails"
		results = append(results, r)
	}
	if err := printChecked(cmd.OutOrStdout(), results, asJSON); err != nil {
		return &failure{fmt.Errorf("print result: %w", err)}
	}
	if failed {
		return errReported
	}
	return nil
}

func checkSink(ctx context.Context, s *config.Sink) checkedSink {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("the check took longer than the sink's timeout of %v", s.Timeout.Round(time.Millisecond)))
	defer cancel()
	r := checkedSink{Sink: s.Name, Result: "ok", Findings: []finding{}}
	err := sinks.Check(ctx, *s, func(what, found string) {
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

// oneLine takes out what a peer could garble a terminal with.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func printChecked(w io.Writer, results []checkedSink, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		return out.Encode(results)
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "SINK\tWHAT\tFOUND")
	for _, r := range results {
		for _, f := range r.Findings {
			_, _ = fmt.Fprintf(out, "%s\t%s\t%s\n", r.Sink, f.What, f.Found)
		}
		text := r.Result
		if r.Error != "" {
			text += ": " + r.Error
		}
		_, _ = fmt.Fprintf(out, "%s\tresult\t%s\n", r.Sink, text)
	}
	return out.Flush()
}
