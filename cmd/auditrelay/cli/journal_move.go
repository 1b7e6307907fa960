package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/move"
)

func (p Program) newJournalMove() *cobra.Command {
	var to string
	var dryRun bool
	output := orJSON("print JSON, with --dry-run")
	return command("journal move", p.configured(), func(cmd *cobra.Command, _ []string, cfg *config.Config) error {
		o := app.MoveOptions{
			Version: p.build().Version, Person: thisProcess(), Logger: newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"}),
		}
		home, err := app.HomeAt(to, cfg)
		if err != nil {
			return misuse{err}
		}
		if !dryRun {
			return moveJournal(cmd, cfg, home, o)
		}
		plan, err := app.PlanMove(cmd.Context(), cfg, o)
		if err != nil {
			return err
		}
		return printAs(cmd.OutOrStdout(), output.isJSON(), &plan, printPlan)
	}, text(&to, "to", `the new place: a journal.url, or "disk" for the data directory`), needed{"to"},
		onOff(&dryRun, "dry-run", "only say what would be moved"), &output)
}

func moveJournal(cmd *cobra.Command, cfg *config.Config, to app.Home, o app.MoveOptions) error {
	shown := newProgress(cmd.ErrOrStderr())
	o.Progress = func(done, total uint64) {
		shown.report(&console.Progress{Done: done, Total: total, Unit: "records"})
	}
	done, err := app.MoveJournal(cmd.Context(), cfg, to, o)
	shown.end()
	if errors.Is(err, app.ErrTakenBack) {
		return say(cmd.OutOrStdout(), "%v", err)
	}
	if err != nil {
		return err
	}
	next := "set journal.url to " + to.URL + " in the configuration, with replicas, tls and credentials_file as the cluster needs them"
	switch {
	case cfg.Journal.URL == to.URL:
		next = "the configuration names it already"
	case to.URL == "":
		next = "remove journal.url from the configuration, with what else is about the cluster"
	}
	return say(cmd.OutOrStdout(), "moved: everything of %s is now in %s\n%s, and start the relay", done.From, done.To, next)
}

func printPlan(p *page, plan *move.Plan) {
	p.row("LOG", "RECORDS", "BYTES", "LARGEST", "GAPS", "POSITIONS")
	for _, l := range plan.Logs {
		p.row(l.Log, l.Records, l.Bytes, l.Largest, l.Gaps, positions(uint64(l.First), uint64(l.Last)))
	}
	p.line("and %d values: positions of sinks and followers, push credentials, and others", plan.Values)
	p.line("it takes about %s; nothing was changed", (time.Duration(plan.Seconds*float64(time.Second)) + time.Second).Round(time.Second))
}
