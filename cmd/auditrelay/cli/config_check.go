package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/sinks"
)

func (p Program) newConfigCheck() *cobra.Command {
	var file string
	output := orJSON("print JSON: {\"ok\", \"errors\", \"warnings\", \"destinations\", \"api\"}")
	var api apiCheck
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Name every error in a configuration",
		Long: `Checks a configuration file like 'auditrelay run', and names all errors and warnings
at once, each with its line, field, value and reason. It prints no secret. Named
environment variables and files must exist, so run it as the relay's user. It
connects to no destination: 'auditrelay sinks check' does.

For topics, subjects and tenants with placeholders, it lists the destinations: of each
environment's events, of events of a project as a whole, and of the relay's own.

With a workspace it says how many requests a look at all settings needs, and how long it
takes at workspace.requests_per_second; it warns if the looks need more than allowed.

--api is a preflight, and needs no running relay. It tries the management key at the
Workspace Management API, looks for each project and environment, and shows where each
streams to, with the changes a running relay would make. It stays within
workspace.requests_per_second, slows down where the API answers 429, and says so. After
--api-timeout it ends; environments left over are an error. It also asks the servers of an
external journal (journal.url) for the guarantees behind their acknowledgements. It only
reads.

Exit codes: 0 no errors (there may be warnings), 1 errors, 64 wrong usage.`,
		Example: `  auditrelay config check relay.yaml
  auditrelay config check relay.yaml --api                     # before the first start
  auditrelay config check relay.yaml --api --api-timeout 10m   # with many environments
  auditrelay config check --config relay.yaml --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && cmd.Flags().Changed("config") {
				return errors.New("give one configuration, as FILE or with --config")
			}
			if len(args) == 1 {
				file = args[0]
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.check(cmd.Context(), cmd.OutOrStdout(), file, output.isJSON(), api)
		},
	}
	addConfigFlag(cmd, &file, "the configuration `FILE`")
	needConfig(cmd, &file)
	output.addTo(cmd)
	cmd.Flags().BoolVar(&api.on, "api", false, "also ask the Workspace Management API, and the servers of an external journal")
	cmd.Flags().DurationVar(&api.timeout, "api-timeout", 2*time.Minute, "the most time that the questions to the API take")
	return cmd
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
	text := problemTable(path, found, warnings)
	if len(found) == 0 {
		text += fmt.Sprintf("%s: ok; environments: %d, sinks: %d\n", path, len(cfg.Environments), len(cfg.Sinks))
		if round := cfg.Round().String(); round != "" {
			text += round + "\n"
		}
		text += destinationTable(to)
	}
	text += api.table(report, cfg)
	result := checked{
		OK: len(found) == 0, Errors: append([]config.Problem{}, found...), Warnings: append([]config.Problem{}, warnings...),
		Destinations: to, API: report,
	}
	if err := printAs(w, asJSON, result, func(w io.Writer, _ checked) error { return writeText(w, text) }); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	if len(found) > 0 {
		return errReported
	}
	return nil
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

func destinationTable(all []destination) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	out := newTable(&b, "SINK", "EVENTS OF", "GO TO")
	for _, d := range all {
		out.row(d.Sink, d.OriginsText(), d.Destination)
	}
	_ = out.Flush() // into memory
	return b.String()
}

func problemTable(path string, found, warnings []config.Problem) string {
	if len(found)+len(warnings) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: errors: %d, warnings: %d\n", path, len(found), len(warnings))
	out := newTable(&b, "", "LINE", "FIELD", "PROBLEM")
	problem := func(kind string, p config.Problem) {
		line, field := "-", "-"
		if p.Line > 0 {
			line = strconv.Itoa(p.Line)
		}
		if p.Field != "" {
			field, p.Field = p.Field, ""
		}
		out.row(kind, line, field, p.String())
	}
	for _, p := range found {
		problem("error", p)
	}
	for _, p := range warnings {
		problem("warning", p)
	}
	_ = out.Flush() // into memory
	return b.String()
}
