package cli

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
)

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
