package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func (p Program) newJournalRepair() *cobra.Command {
	files, output := p.files(), orJSON("print JSON")
	var yes, dryRun bool
	return command("journal repair", files, func(cmd *cobra.Command, _ []string, cfg *config.Config) error {
		dir := cfg.DataDir
		v, err := verifyJournal(cmd, cfg)
		if err != nil {
			return err
		}
		if dryRun || v.open() == 0 {
			return printAs(cmd.OutOrStdout(), output.isJSON(), v, func(p *page, v *verification) {
				printVerification(p, v)
				p.line("nothing was changed")
			})
		}
		if !yes {
			_ = show(cmd.ErrOrStderr(), v, printVerification)
		}
		question := fmt.Sprintf("Take a copy of %s first, for instance: cp -a %s %s.copy\nRepair now?", dir, dir, dir)
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		done, err := repairStore(cmd.Context(), cfg, newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"}))
		if err != nil {
			return err
		}
		return printAs(cmd.OutOrStdout(), output.isJSON(), done, printRepairs)
	}, &output, onOff(&yes, "yes", "do not ask"), onOff(&dryRun, "dry-run", "only list the repairs"))
}

// repairs are the results of a repair.
type repairs struct {
	// SetAside are the positions now in the quarantine, without those from before.
	SetAside []journal.Loss `json:"set_aside"`
}

func printRepairs(p *page, done repairs) {
	for _, q := range done.SetAside {
		p.line("set aside   %s, position %s: %s", q.Log, positions(uint64(q.From), uint64(q.To)), q.Reason)
	}
	p.line("repaired: %d runs of positions set aside", len(done.SetAside))
}

// repairStore opens the store as a start does, which mends it, and reads all of it back.
func repairStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (done repairs, err error) {
	s, err := app.OpenStore(ctx, cfg, app.StoreOptions{Logger: log})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	names, err := journal.OpenQuarantine(ctx, s, journal.QuarantineOptions{Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	before, err := names.All(ctx)
	if err != nil {
		return done, err
	}
	if err := journal.PassUnseen(ctx, s, cfg.Journal, log); err != nil {
		return done, err
	}
	logs, err := s.Logs(ctx)
	if err != nil {
		return done, err
	}
	for _, name := range logs {
		if isTrail(name) {
			continue // the trail names its own damage, as at a start
		}
		if err := repairLog(ctx, s, names, name, app.KeepOf(cfg)(name)); err != nil {
			return done, fmt.Errorf("repair the log %s: %w", name, err)
		}
	}
	if err := withTrail(ctx, cfg, s, log, func(context.Context, *audit.Trail) error { return nil }); err != nil {
		return done, err
	}
	after, err := names.All(ctx)
	if err != nil {
		return done, err
	}
	done.SetAside = append([]journal.Loss{}, after[len(before):]...)
	return done, nil
}

// repairLog names the gaps of a log, and the events' records that cannot be read.
func repairLog(ctx context.Context, s store.Store, names *journal.Quarantine, name string, opts store.Options) error {
	l, err := s.Log(ctx, name, opts)
	if err != nil {
		return err
	}
	if err := names.Watch(ctx, name, l); err != nil {
		return err
	}
	for item, err := range l.Read(ctx, 1, false) {
		switch {
		case err != nil:
		case item.Gap != nil:
			err = names.Name(ctx, name, *item.Gap)
		case journal.IsEvents(name):
			if _, corrupt := record.Check(item.Record.Data); errors.Is(corrupt, record.ErrCorrupt) {
				err = names.NameRecord(ctx, name, item.Record.Pos, corrupt.Error(), item.Record.Data)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
