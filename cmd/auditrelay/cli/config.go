package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/sinks"
)

func (p Program) newConfigCheck() *cobra.Command {
	which := p.configured()
	output := orJSON("print JSON: {\"ok\", \"errors\", \"warnings\", \"destinations\", \"api\"}")
	var api apiCheck
	return command("config check", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		return p.check(cmd.Context(), cmd.OutOrStdout(), which.file, output.isJSON(), api)
	}, which, &output, onOff(&api.on, "api", "also ask the Workspace Management API, and the servers of an external journal"), flagFunc(func(flags *pflag.FlagSet) {
		flags.DurationVar(&api.timeout, "api-timeout", 2*time.Minute, "the most time that the questions to the API take")
	}), takes(func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && cmd.Flags().Changed("config") {
			return errors.New("give one configuration, as FILE or with --config")
		}
		if len(args) == 1 {
			which.file = args[0]
		}
		return nil
	}))
}

// checked is the result of `config check --json`.
type checked struct {
	OK           bool             `json:"ok"`
	Errors       []config.Problem `json:"errors"`
	Warnings     []config.Problem `json:"warnings"`
	Destinations []destination    `json:"destinations,omitempty"`
	// API is nil without --api, and without a workspace.
	API *streaming.PreflightReport `json:"api,omitempty"`
}

// destination is a result of a sink's template.
type destination struct {
	Sink string `json:"sink"`
	sinks.Destination
}

func (p Program) check(ctx context.Context, w io.Writer, path string, asJSON bool, api apiCheck) error {
	cfg, warnings, err := p.Kinds.Config().Check(path)
	var found config.Errors
	if err != nil && !errors.As(err, &found) {
		return err
	}
	to, cannot := p.whereEventsGo(path, cfg)
	found = append(found, cannot...)
	report, errs, more := api.ask(ctx, path, cfg)
	found, warnings = append(found, errs...), append(warnings, more...)
	result := checked{
		OK: len(found) == 0, Errors: append([]config.Problem{}, found...), Warnings: append([]config.Problem{}, warnings...),
		Destinations: to, API: report,
	}
	err = printAs(w, asJSON, result, func(p *page, _ checked) {
		p.problems(path, found, warnings)
		if len(found) == 0 {
			p.line("%s: ok; environments: %d, sinks: %d", path, len(cfg.Environments), len(cfg.Sinks))
			if round := cfg.Round().String(); round != "" {
				p.line("%s", round)
			}
			p.destinations(to)
		}
		api.print(p, report, cfg)
	})
	if err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return errReported.when(len(found) > 0)
}

// whereEventsGo makes each sink, as a start does, and says where its events go.
func (p Program) whereEventsGo(path string, cfg *config.Config) (all []destination, cannot []config.Problem) {
	if cfg == nil {
		return nil, nil
	}
	for i, s := range cfg.Sinks {
		found, err := sinks.Destinations(s, cfg.Environments, sinks.Deps{Kinds: p.Kinds})
		if err != nil {
			cannot = append(cannot, config.Problem{File: path, Field: fmt.Sprintf("sinks[%d]", i), Reason: err.Error()})
		}
		for _, d := range found {
			all = append(all, destination{s.Name, d})
		}
	}
	return all, cannot
}

func (p *page) destinations(all []destination) {
	if len(all) == 0 {
		return
	}
	p.row("SINK", "EVENTS OF", "GO TO")
	for _, d := range all {
		p.row(d.Sink, d.OriginsText(), d.Destination)
	}
}

func (p *page) problems(path string, found, warnings []config.Problem) {
	if len(found)+len(warnings) == 0 {
		return
	}
	p.line("%s: errors: %d, warnings: %d", path, len(found), len(warnings))
	p.row("", "LINE", "FIELD", "PROBLEM")
	for i, problem := range slices.Concat(found, warnings) {
		kind, line := "error", "-"
		if i >= len(found) {
			kind = "warning"
		}
		if problem.Line > 0 {
			line = strconv.Itoa(problem.Line)
		}
		field := cmp.Or(problem.Field, "-")
		problem.Field = ""
		p.row(kind, line, field, problem.String())
	}
}

// apiCheck is the part of `config check` over the network.
type apiCheck struct {
	on      bool
	timeout time.Duration
}

// ask returns no report without --api, and without a workspace.
func (a apiCheck) ask(ctx context.Context, path string, cfg *config.Config) (report *streaming.PreflightReport, errs, warnings []config.Problem) {
	if !a.on || cfg == nil {
		return nil, nil, nil
	}
	errs, warnings = journalProblems(ctx, path, cfg.Journal)
	if cfg.Workspace != nil {
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		r := streaming.Preflight(ctx, cfg)
		report, errs, warnings = &r, append(errs, r.Errors...), append(warnings, r.Warnings...)
	}
	lines := config.Lines(path)
	for _, problems := range [][]config.Problem{errs, warnings} {
		for i := range problems {
			p := &problems[i]
			p.File, p.Line, p.Reason = path, lines(p.Field), oneLine(p.Reason)
		}
		slices.SortStableFunc(problems, func(a, b config.Problem) int {
			return cmp.Or(a.Line-b.Line, strings.Compare(a.Field, b.Field))
		})
	}
	return report, errs, warnings
}

func (a apiCheck) print(p *page, r *streaming.PreflightReport, cfg *config.Config) {
	switch {
	case a.on && cfg == nil:
		p.line("--api asked nothing: correct the errors first")
		return
	case r == nil:
		return
	}
	p.line("management API: key %s; %d requests in %.1f s, %d of them answered 429; the relay needs %.1f requests per second, and %.1f are allowed",
		r.Key, r.Requests, r.Seconds, r.Throttled, r.NeededPerSecond, r.AllowedPerSecond)
	if !slices.ContainsFunc(r.Environments, func(e streaming.PreflightEnvironment) bool { return e.Exists != streaming.ExistsUnknown }) {
		return
	}
	p.row("ENVIRONMENT", "EXISTS", "STREAMS TO", "STATUS", "THE RELAY WOULD")
	for i, e := range r.Environments {
		to := "-"
		if e.Exists == streaming.ExistsYes {
			to = printable(streaming.DestinationText(e.Destination))
		}
		p.row(e.Project+"/"+e.Environment, e.Exists, to, cmp.Or(printable(string(e.Status)), "-"), intention(cfg, cfg.Environments[i], e))
	}
}

// intention is the plan of a running relay for a streaming config.
func intention(cfg *config.Config, e config.Environment, found streaming.PreflightEnvironment) string {
	switch {
	case found.Exists != streaming.ExistsYes:
		return "-"
	case e.Stream == nil && e.SkipSettings:
		return "not look at it"
	case e.Stream == nil || e.Stream.Observe:
		return "record changes, and set nothing"
	case len(found.Differs) == 0:
		return "leave it as it is"
	case cfg.Streaming.DryRun, e.Mode == config.ModeObserve:
		return "report, and set nothing: " + strings.Join(found.Differs, ", ")
	case found.Destination == nil:
		return "create it"
	}
	return "change " + strings.Join(found.Differs, ", ")
}
