package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

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

func (a apiCheck) table(r *streaming.PreflightReport, cfg *config.Config) string {
	switch {
	case a.on && cfg == nil:
		return "--api asked nothing: correct the errors first\n"
	case r == nil:
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "management API: key %s; %d requests in %.1f s, %d of them answered 429; the relay needs %.1f requests per second, and %.1f are allowed\n",
		r.Key, r.Requests, r.Seconds, r.Throttled, r.NeededPerSecond, r.AllowedPerSecond)
	if !slices.ContainsFunc(r.Environments, func(e streaming.PreflightEnvironment) bool { return e.Exists != streaming.ExistsUnknown }) {
		return b.String()
	}
	out := newTable(&b, "ENVIRONMENT", "EXISTS", "STREAMS TO", "STATUS", "THE RELAY WOULD")
	for i, e := range r.Environments {
		to := "-"
		if e.Exists == streaming.ExistsYes {
			to = printable(streaming.DestinationText(e.Destination))
		}
		out.row(e.Project+"/"+e.Environment, e.Exists, to, cmp.Or(printable(string(e.Status)), "-"), intention(cfg, cfg.Environments[i], e))
	}
	_ = out.Flush() // into memory
	return b.String()
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
