package verify

import (
	"context"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// skip notes entries whose bundle is not here: their part on the watching is not known.
func (c *completeness) skip(from, to int64) {
	clear(c.span)
	clear(c.looked)
	c.unread = adjoin(c.unread, Archived{From: from, To: to})
}

// adjoin adds a run of entries, or lengthens the newest one.
func adjoin(list []Archived, a Archived) []Archived {
	if n := len(list); n > 0 {
		if p := &list[n-1]; p.Log == a.Log && p.Where == a.Where && p.To == a.From-1 {
			p.To = a.To
			return list
		}
	}
	return append(list, a)
}

func (c *completeness) isUnread(index int64) bool {
	return slices.ContainsFunc(c.unread, func(a Archived) bool { return a.From <= index && index <= a.To })
}

// eachAbsent gives the findings about the missing bundles, each of which may be in an archive. Of an old
// trail they are too many to keep one by one.
func (c *completeness) eachAbsent(visit func(proof.Finding)) {
	for _, run := range c.absent {
		base := proof.BaseOf(run.Log)
		for from := run.From; from <= run.To; {
			n := (from - base) / width
			to := min(run.To, base+(n+1)*width-1)
			visit(proof.Finding{Kind: proof.KindMissing, Log: run.Log, From: from, To: to, File: proof.BundlePath(n, width), Detail: notThere})
			from = to + 1
		}
	}
}

// setApart tells the archived entries from the missing ones: they are no finding, unless all
// bundles have to be there.
func (t *trailCheck) setApart() {
	t.complete.eachAbsent(func(f proof.Finding) {
		if a, archived := t.archiveOf(f); archived && !t.o.Whole && !slices.Contains(t.o.Here, a.Where) {
			t.report.Archived = adjoin(t.report.Archived, Archived{f.Log, f.From, f.To, a.Where})
		} else {
			t.report.Integrity.add(f)
		}
	})
}

// archiveOf finds the archive with a moved bundle.
func (t *trailCheck) archiveOf(f proof.Finding) (proof.Archived, bool) {
	for _, a := range t.complete.archived {
		if a.Origin == f.Log && a.From <= f.From && f.To <= a.To {
			return a, true
		}
	}
	return proof.Archived{}, false
}

// Files verifies the files of one log in a folder, as signed by a key, and rests after each bundle. A keeper
// may write them meanwhile, and a crash may have left a history ahead of its checkpoint. So it asks only at the
// end how many entries, from the log's first one on, have their bundles elsewhere. Nobody asks here for
// witnesses, who have cosigned newer checkpoints, or for completeness.
func Files(ctx context.Context, dir, origin, key string, archivedEnd func() int64, rest time.Duration) ([]proof.Finding, error) {
	policy, err := proof.NewPolicy([]proof.Log{{Key: key}}, nil, 0)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	l := &logCheck{
		fetch: Dir(dir), o: &Options{Live: true, Stopped: true, Workers: 1, Rest: rest}, report: report, complete: newCompleteness(report),
		origin: origin, base: proof.BaseOf(origin), policy: policy, trusted: true,
	}
	if _, err = l.run(ctx); err != nil {
		return nil, err
	}
	archived := l.base + archivedEnd()
	l.complete.eachAbsent(func(f proof.Finding) {
		if f.To >= archived {
			report.Integrity.add(f)
		}
	})
	report.Integrity.close()
	return report.Integrity.Findings, nil
}
