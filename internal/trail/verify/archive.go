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

// setApart takes the archived entries out of the missing ones: they are no finding, unless all
// bundles have to be there.
func (t *trailCheck) setApart() {
	var left []proof.Finding
	for _, f := range t.report.Integrity.Findings {
		if a, archived := t.archiveOf(f); archived && !t.o.Whole {
			t.report.Archived = adjoin(t.report.Archived, Archived{f.Log, f.From, f.To, a.Where})
		} else {
			left = append(left, f)
		}
	}
	t.report.Integrity.Findings = left
}

// archiveOf finds the archive with a moved bundle.
func (t *trailCheck) archiveOf(f proof.Finding) (proof.Archived, bool) {
	for _, a := range t.complete.archived {
		if isOfBundle(f) && a.Origin == f.Log && a.From <= f.From && f.To <= a.To {
			return a, true
		}
	}
	return proof.Archived{}, false
}

// Files verifies the files of one log in a folder, as signed by a key, and rests after each bundle. A keeper
// may write them meanwhile, and a crash may have left a history ahead of its checkpoint. Nobody asks here for
// witnesses, who have cosigned newer checkpoints, or for completeness.
func Files(ctx context.Context, dir, origin, key string, rest time.Duration) ([]proof.Finding, error) {
	policy, err := proof.NewPolicy([]proof.Log{{Key: key}}, nil, 0)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	l := &logCheck{
		fetch: Dir(dir), o: &Options{Live: true, Stopped: true, Workers: 1, Rest: rest}, report: report, complete: newCompleteness(report),
		origin: origin, base: proof.BaseOf(origin), policy: policy, trusted: true,
	}
	_, err = l.run(ctx)
	report.Integrity.close()
	return report.Integrity.Findings, err
}
