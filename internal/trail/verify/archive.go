package verify

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/truth"
)

// archives are the logs in archives.
type archives struct {
	logs []ArchivedLog
	used map[string]bool // archives with a log of the trail
	all  []string
}

// ArchivedLog is a log in a folder of an archive.
type ArchivedLog struct{ Origin, Archive, Dir string }

// OpenArchive lists the logs of an archive, of which there is at least one.
func OpenArchive(ctx context.Context, archive string) (list []ArchivedLog, err error) {
	fetch, dirs, _ := Folder(archive) // without a log there is none to list
	for _, dir := range dirs {
		origins, err := originsOf(ctx, fetch.below(dir))
		if err != nil {
			return nil, fmt.Errorf("open the archive: %w", err)
		}
		if len(origins) > 0 {
			list = append(list, ArchivedLog{origins[0], archive, filepath.Join(archive, dir)})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("open the archive: %s has no log with a checkpoint: it is lost, damaged, or another folder", archive)
	}
	return list, nil
}

func openArchives(ctx context.Context, dirs []string) (archives, error) {
	a := archives{used: map[string]bool{}, all: dirs}
	for _, dir := range dirs {
		list, err := OpenArchive(ctx, dir)
		if err != nil {
			return a, err
		}
		a.logs = append(a.logs, list...)
	}
	return a, nil
}

// of are the folders with a log.
func (a archives) of(origin string) (dirs []string) {
	for _, l := range a.logs {
		if l.Origin == origin {
			a.used[l.Archive] = true
			dirs = append(dirs, l.Dir)
		}
	}
	return dirs
}

// unused is the error for the archive of another trail.
func (a archives) unused() error {
	for _, dir := range a.all {
		if !a.used[dir] {
			return fmt.Errorf("open the archive: %s is the archive of another trail", dir)
		}
	}
	return nil
}

// fromArchive reads a file missing from the log itself; from is empty where no archive
// has it.
func (l *logCheck) fromArchive(ctx context.Context, path string) (data []byte, from string, err error) {
	for _, dir := range l.archives {
		data, missing, err := Dir(dir).read(ctx, path)
		if err != nil || !missing {
			return data, dir, err
		}
	}
	return nil, "", nil
}

// inArchive is a finding about a file of an archive, not of the trail itself. Without a folder it is
// the trail's.
func inArchive(dir string, f truth.Finding) truth.Finding {
	if dir != "" {
		f.Kind, f.Detail, f.File = truth.Archive, f.Kind+" in the archive; the trail itself is not concerned: "+f.Detail, filepath.Join(dir, f.File)
	}
	return f
}

// skip notes entries whose bundle is not here: their part on the watching is not known.
func (c *completeness) skip(from, to int64) {
	c.span, c.looked = nil, nil
	if n := len(c.unread); n > 0 && c.unread[n-1].To == from-1 {
		c.unread[n-1].To = to
		return
	}
	c.unread = append(c.unread, Archived{From: from, To: to})
}

func (c *completeness) isUnread(index int64) bool {
	return slices.ContainsFunc(c.unread, func(a Archived) bool { return a.From <= index && index <= a.To })
}

// setApart takes the archived entries out of the missing ones. They are no finding, except
// where their archive is at hand and lacks them: it is damaged, as if it had altered them.
func (t *trailCheck) setApart() {
	var left []truth.Finding
	for _, f := range t.report.Integrity.Findings {
		a, archived := t.archiveOf(f)
		switch {
		case !archived:
			left = append(left, f)
		case t.isAtHand(a):
			f.Kind, f.File = truth.Archive, ""
			f.Detail = "their bundles were moved to " + a.Where + ", and the given archives do not have them; their hashes are the signed ones"
			left = append(left, f)
		default:
			t.report.addArchived(Archived{f.Log, f.From, f.To, a.Where})
		}
	}
	t.report.Integrity.Findings = left
	for _, f := range t.complete.borrowed {
		if _, archived := t.archiveOf(f); !archived {
			t.report.Integrity.add(f)
		}
	}
}

// isAtHand reports whether an archive is among the given ones: by its folder, or as there are
// as many of them as the trail names.
func (t *trailCheck) isAtHand(a proof.Archived) bool {
	named := map[string]bool{}
	for _, other := range t.complete.archived {
		named[other.Where] = true
	}
	return len(t.o.Archives) >= len(named) || slices.ContainsFunc(t.o.Archives, func(dir string) bool {
		given, err := filepath.Abs(dir)
		return err == nil && given == filepath.Clean(a.Where)
	})
}

// onlyArchived is the reason for a missing bundle of the trail, with a copy in an archive.
const onlyArchived = notThere + "; an archive has it, though the trail does not say that it was moved"

// borrowed is the finding for a bundle of an archive, unless it was moved there.
func (l *logCheck) borrowed(c *chunk) truth.Finding {
	first := l.base + c.n*width
	return truth.Finding{Kind: truth.Missing, Log: l.origin, From: first, To: first + int64(c.width) - 1, File: c.bundleFile, Detail: onlyArchived}
}

// archiveOf finds the archive with a moved bundle.
func (t *trailCheck) archiveOf(f truth.Finding) (proof.Archived, bool) {
	if f.Kind != truth.Missing || f.Detail != notThere && f.Detail != onlyArchived {
		return proof.Archived{}, false
	}
	for _, a := range t.complete.archived {
		if a.Origin == f.Log && a.From <= f.From && f.To <= a.To {
			return a, true
		}
	}
	return proof.Archived{}, false
}

func (r *Report) addArchived(a Archived) {
	if n := len(r.Archived); n > 0 {
		if p := &r.Archived[n-1]; p.Log == a.Log && p.Where == a.Where && p.To == a.From-1 {
			p.To = a.To
			return
		}
	}
	r.Archived = append(r.Archived, a)
}

// errHashOnly marks an entry proven by its hash only.
var errHashOnly = errors.New("its bundle is not there")

// checkArchives verifies all of the given archives, as logs of their own under the keys that
// were trusted here. Their completeness is no question: they end long before the trail.
func (t *trailCheck) checkArchives(ctx context.Context) error {
	for _, a := range t.archives.logs {
		at := slices.IndexFunc(t.report.Logs, func(l Log) bool { return l.Origin == a.Origin })
		if at < 0 {
			continue
		}
		found, err := Files(ctx, a.Dir, a.Origin, t.report.Logs[at].Key, Options{Workers: t.o.Workers})
		if err != nil {
			return err
		}
		for _, f := range found {
			if !t.isNamed(f, a.Archive) {
				if f = inArchive(a.Dir, f); !slices.Contains(t.report.Integrity.Findings, f) {
					t.report.Integrity.add(f)
				}
			}
		}
	}
	return nil
}

// Files verifies the files of one log in a folder, as signed by a key; an empty key stands for
// none. Nobody asks here for witnesses, who have cosigned newer checkpoints, or for completeness.
func Files(ctx context.Context, dir, origin, key string, o Options) ([]truth.Finding, error) {
	report := &Report{}
	l := &logCheck{fetch: Dir(dir), o: &o, report: report, complete: &completeness{report: report}, origin: origin, base: proof.BaseOf(origin)}
	if key != "" {
		policy, err := proof.NewPolicy([]proof.Log{{Key: key}}, nil, 0)
		if err != nil {
			return nil, err
		}
		l.policy, l.trusted = policy, true
	}
	_, err := l.run(ctx)
	report.Integrity.close()
	return report.Integrity.Findings, err
}

// isNamed reports whether a finding about an archive was named already, or is of a bundle that
// the trail says to be in another archive.
func (t *trailCheck) isNamed(f truth.Finding, archive string) bool {
	if f.From < 0 {
		return false
	}
	if slices.ContainsFunc(t.report.Integrity.Findings, func(n truth.Finding) bool {
		return n.Kind == truth.Archive && n.Log == f.Log && n.From <= f.From && f.To <= n.To
	}) {
		return true
	}
	given, err := filepath.Abs(archive)
	return isOfBundle(f) && err == nil && slices.ContainsFunc(t.complete.archived, func(a proof.Archived) bool {
		return a.Origin == f.Log && a.From <= f.From && f.To <= a.To && filepath.Clean(a.Where) != given && len(t.o.Archives) > 1
	})
}
