package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// inTheLog names the trail's log in the store, as the place of a finding.
const inTheLog = "the trail's log"

// Stopped verifies the trail of a stopped relay: the files in a folder, where there are any, and
// what a reading of the trail's logs in the store has found, of which the trail itself does not
// name the unnamed problems. The files are derived from the logs, so both have to agree.
func Stopped(ctx context.Context, dir string, kept audit.Report, unnamed []proof.Finding, o Options) (Report, error) {
	r := Report{Trusted: o.Policy != nil, Checkpoints: int64(kept.Checkpoints)}
	if fetch, dirs, err := Folder(dir); err == nil {
		o.Stopped = true
		if r, err = Trail(ctx, fetch, dirs, o); err != nil {
			return Report{}, err
		}
	} else {
		for _, note := range o.Known {
			origin, _ := originIn(note)
			r.Completeness.about(proof.KindCheckpoint, origin, "",
				"a checkpoint known from elsewhere, of the log %q, is held against nothing, as the trail's files are gone; the next start writes them again", origin)
		}
	}
	r.addNewer(kept, o)
	for _, f := range kept.Problems {
		if !slices.Contains(unnamed, f) { // a part of it may be unnamed
			f.Kind, f.File, f.Detail = proof.KindNamed, inTheLog, f.Kind+": "+f.Detail
			r.Completeness.add(f)
		}
	}
	for _, f := range unnamed {
		f.File = inTheLog
		r.Integrity.add(f)
	}
	r.holdAgainst(kept)
	r.close()
	return r, nil
}

// addNewer adds what the logs have and the files lack. The files follow the logs, and a
// relay that stops writes them to their end. So where they lack signed entries, or a whole
// generation, the relay was killed just before it wrote them, or somebody has deleted files
// or put older ones in their place: nobody can tell these apart, and the next start writes the
// files again. Entries that a killed relay has left unsigned are named too.
func (r *Report) addNewer(kept audit.Report, o Options) {
	trusted := false
	for _, g := range kept.Generations {
		err := vouched(o, g, trusted)
		trusted = err == nil
		l := r.logOf(g)
		switch {
		case g.Size <= l.Size:
		case err != nil:
			r.Integrity.about(proof.KindKey, g.Origin, inTheLog, "%v", err)
		default:
			r.Completeness.run(proof.KindMissing, g.Origin, g.Base+l.Size, g.Base+g.Size-1, proof.FilesDir,
				"the trail's log has them, and its files do not: the relay was killed before it wrote them, or files were deleted, or older ones put in their place; the next start writes them again")
			r.Entries += g.Size - l.Size
			l.Size, l.Root, l.Signed, l.Witnesses = g.Size, g.Root, time.Time{}, nil
		}
	}
	if kept.Entries > kept.Signed {
		r.Completeness.run(proof.KindNotCovered, "", kept.Signed, kept.Entries-1, inTheLog, "no checkpoint covers them yet; the relay signs them at its next start")
	}
}

// vouched says why nothing vouches for the key of a generation: it is neither the policy's, nor
// named by a trusted generation before. Without a policy every key will do.
func vouched(o Options, g audit.Generation, trusted bool) error {
	if o.Policy == nil || trusted && g.Endorsed {
		return nil
	}
	own, err := PolicyFor(*o.Policy, g.Origin)
	if err == nil && !proof.SamePublicKey(own.Logs[0].Key, g.PublicKey) {
		err = fmt.Errorf("it is signed with the key %s, not with the trusted one", g.PublicKey)
	}
	return err
}

// logOf is the log of a generation, which is added where it is not there.
func (r *Report) logOf(g audit.Generation) *Log {
	for i := range r.Logs {
		if l := &r.Logs[i]; l.Origin == g.Origin && (l.Key == "" || l.Key == g.PublicKey) {
			return l
		}
	}
	if g.Size == 0 {
		return &Log{}
	}
	r.Logs = append(r.Logs, Log{Origin: g.Origin, Key: g.PublicKey, Base: g.Base})
	return &r.Logs[len(r.Logs)-1]
}

// holdAgainst holds the proven entries against the logs that they were derived from. Logs that
// were put back to an earlier state, with all notes next to them, end before them.
func (r *Report) holdAgainst(kept audit.Report) {
	from := kept.Entries
	for _, p := range slices.Concat(kept.Problems, kept.Restored) { // known already
		if p.Kind == proof.KindTruncated || p.Kind == proof.KindRestored {
			from = max(from, p.To+1)
		}
	}
	for _, l := range r.Logs {
		if end := l.Base + l.Size; end > from {
			r.Integrity.run(proof.KindTruncated, l.Origin, from, end-1, inTheLog, "the log ends before them, and the trail's files have them: the log was put back to an earlier state")
			from = end
		}
	}
}
