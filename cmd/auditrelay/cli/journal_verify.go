package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func (p Program) newJournalVerify() *cobra.Command {
	return question("journal verify", p.files(), orJSON("print JSON"), func(cmd *cobra.Command, cfg *config.Config, _ []string) (*verification, error) {
		v, err := verifyJournal(cmd, cfg)
		if err == nil {
			err = errReported.when(v.open() > 0)
		}
		return v, err
	}, printVerification)
}

func verifyJournal(cmd *cobra.Command, cfg *config.Config) (*verification, error) {
	files, err := openLogs(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	shown := newProgress(cmd.ErrOrStderr())
	v, err := files.verify(cmd.Context(), shown.megabytes)
	shown.end()
	if err != nil {
		return nil, err
	}
	unseen, err := journal.Unseen(cmd.Context(), files.store, cfg.Journal)
	if err != nil {
		return nil, err
	}
	if unseen != nil {
		v.see(journal.EventsLog, store.Item{Gap: unseen}, func(*problem) bool { return false })
	}
	return v, verifyTrail(cmd.Context(), cfg, v)
}

// verifyTrail adds the findings of the audit trail's signatures and key.
func verifyTrail(ctx context.Context, cfg *config.Config, v *verification) error {
	report, unnamed, err := verifyLog(ctx, cfg)
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(report.Problems, report.Restored) {
		found := problem{
			Log: audit.EntriesLog, What: "audit trail: " + p.String(), Settled: !slices.Contains(unnamed, p),
			Advice: "put a copy back, or start the relay: it names this in the trail, and goes on",
		}
		if found.Settled {
			found.Advice = "nothing is left to do: the trail names it"
		}
		v.Problems = append(v.Problems, found)
	}
	return nil
}

func printVerification(p *page, v *verification) {
	for _, found := range v.Problems {
		state := "PROBLEM"
		if found.Settled {
			state = "settled"
		}
		p.line("%s  %s, position %s: %s", state, found.Log, positions(uint64(found.From), uint64(found.To)), found.What)
		if found.Kept != "" {
			p.line("         the bytes are in %s", found.Kept)
		}
		p.line("         %s", found.Advice)
	}
	p.line("%d records with %d events (%d bytes) were read; problems: %d open, %d settled",
		v.Records, v.Events, v.Bytes, v.open(), len(v.Problems)-v.open())
}

// logFiles are the logs of a data directory, open for reading only. A relay may run meanwhile.
type logFiles struct {
	store store.Store
	logs  []logFile
	lost  []journal.Loss
}

type logFile struct {
	store.Log
	name  string
	state store.State
}

func openLogs(ctx context.Context, cfg *config.Config) (*logFiles, error) {
	dir := filepath.Join(cfg.DataDir, app.StoreDir)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s, err := app.ViewStore(cfg)
	if err != nil {
		return nil, err
	}
	names, err := s.Logs(ctx)
	if err != nil {
		return nil, err
	}
	f := &logFiles{store: s}
	for _, name := range names {
		l, err := s.Log(ctx, name, store.Options{})
		if err != nil {
			return nil, err
		}
		state, err := l.State(ctx)
		if err == nil && name == journal.QuarantineLog {
			f.lost, err = journal.Losses(ctx, l)
		}
		if err != nil {
			return nil, err
		}
		f.logs = append(f.logs, logFile{l, name, state})
	}
	return f, nil
}

// settled reports whether the quarantine names all positions of a run.
func (f *logFiles) settled(l *logFile, from, to store.Pos) bool {
	for from <= to {
		i := slices.IndexFunc(f.lost, func(loss journal.Loss) bool {
			return loss.Log == l.name && loss.ID == l.state.ID.String() && loss.From <= from && from <= loss.To
		})
		if i < 0 {
			return false
		}
		from = f.lost[i].To + 1
	}
	return true
}

// timeOf is when the first record from a position on was appended; zero without any.
func (l *logFile) timeOf(ctx context.Context, from store.Pos) (time.Time, error) {
	for item, err := range l.Read(ctx, from, false) {
		if err != nil {
			return time.Time{}, err
		}
		if item.Record != nil {
			return item.Record.Time.UTC(), nil
		}
	}
	return time.Time{}, nil
}

// verification is what reading all logs of a data directory found.
type verification struct {
	Records  uint64    `json:"records"`
	Events   uint64    `json:"events"`
	Bytes    uint64    `json:"bytes"`
	Problems []problem `json:"problems"`
}

type problem struct {
	Log  string    `json:"log"`
	From store.Pos `json:"from,omitempty"`
	To   store.Pos `json:"to,omitempty"`
	What string    `json:"what"`
	// Kept is the file with the bytes that stood there.
	Kept   string `json:"kept,omitempty"`
	Advice string `json:"advice"`
	// Settled means that the quarantine or the trail names it already, and nothing is left to do.
	Settled bool `json:"settled"`
}

// open counts the problems that are not settled.
func (v *verification) open() (n int) {
	for _, p := range v.Problems {
		if !p.Settled {
			n++
		}
	}
	return n
}

// verify reads every record of every log.
func (f *logFiles) verify(ctx context.Context, progress func(done, total int64)) (*verification, error) {
	v := &verification{Problems: []problem{}}
	total := int64(0)
	for i := range f.logs {
		total += f.logs[i].state.Bytes
	}
	for i := range f.logs {
		l := &f.logs[i]
		for item, err := range l.Read(ctx, 1, false) {
			if err != nil {
				return nil, err
			}
			v.see(l.name, item, func(p *problem) bool { return f.settled(l, p.From, p.To) })
			progress(min(int64(v.Bytes), total), total)
		}
	}
	return v, nil
}

// see takes an item of a log into account.
func (v *verification) see(name string, item store.Item, settled func(*problem) bool) {
	p := v.take(name, item)
	if p == nil || isTrail(name) {
		return
	}
	p.Advice = "put a copy of the file back, or start the relay: it names this in the quarantine, and goes on"
	if p.Settled = settled(p); p.Settled {
		p.Advice = "nothing is left to do: the quarantine names it"
	}
	v.Problems = append(v.Problems, *p)
}

// isTrail reports whether a log is one of the trail's. The trail names its own damage, and
// tells it apart from what its files still have: see verifyTrail.
func isTrail(name string) bool { return name == audit.EntriesLog || name == audit.CheckpointsLog }

// take counts what a log has at one place, and returns what is wrong with it, or nil.
func (v *verification) take(name string, item store.Item) *problem {
	if g := item.Gap; g != nil {
		what := map[store.Reason]string{
			store.Damaged:  "no record can be read there: it was damaged or lost",
			store.Doubtful: "possibly acknowledged: a power cut left no whole record there",
		}[g.Why]
		if what == "" { // trimmed
			return nil
		}
		return &problem{Log: name, From: g.From, To: g.To, What: what, Kept: g.Kept}
	}
	r := item.Record
	v.Records++
	v.Bytes += uint64(len(r.Key) + len(r.Data))
	if !journal.IsEvents(name) {
		return nil
	}
	events, err := record.Check(r.Data)
	v.Events += uint64(events)
	if err != nil {
		return &problem{Log: name, From: r.Pos, To: r.Pos, What: err.Error()}
	}
	return nil
}
