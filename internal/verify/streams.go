package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/proof"
	"github.com/auditrelay/auditrelay/internal/tiles"
)

// Streams is the report of a trail without files for public tools.
func Streams(streams audit.Report, o Options) Report {
	r := Report{Trusted: o.Policy != nil, Checkpoints: int64(streams.Checkpoints)}
	r.AddNewer(streams, o)
	return r
}

// AddNewer adds what the log has and the files lack. The files follow the log, and a
// relay that stops writes them to their end. So where they lack signed entries, or a whole
// generation, the relay was killed just before it wrote them, or somebody has deleted files
// or put older ones in their place: nobody can tell these apart, and the next start writes the
// files again. Entries that a killed relay has left unsigned are named too.
func (r *Report) AddNewer(streams audit.Report, o Options) {
	trusted := false
	for _, g := range streams.Generations {
		err := vouched(o, g, trusted)
		trusted = err == nil
		l := r.logOf(g)
		switch {
		case g.Size <= l.Size:
		case err != nil:
			r.Integrity.add(Finding{Kind: Key, Log: g.Origin, From: -1, To: -1, File: inTheLog, Detail: err.Error()})
		default:
			r.Completeness.add(Finding{
				Kind: Missing, Log: g.Origin, From: g.Base + l.Size, To: g.Base + g.Size - 1, File: tiles.Dir,
				Detail: "the trail's log has them, and its files do not: the relay was killed before it wrote them, or files were deleted, or older ones put in their place; the next start writes them again",
			})
			r.Entries += g.Size - l.Size
			l.Size, l.Root, l.Signed, l.Witnesses = g.Size, g.Root, time.Time{}, nil
		}
	}
	if streams.Entries > streams.Signed {
		r.Completeness.add(Finding{
			Kind: NotCovered, From: streams.Signed, To: streams.Entries - 1, File: inTheLog,
			Detail: "no checkpoint covers them yet; the relay signs them at its next start",
		})
	}
	r.Integrity.close()
	r.Completeness.close()
}

const inTheLog = "the trail's log"

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

// AddStreams adds a problem of the trail's log. One named by the trail itself, in a
// signed entry, counts against completeness.
func (r *Report) AddStreams(p audit.Problem, named bool) {
	f := Finding{Kind: p.Kind, From: p.From, To: p.To, File: inTheLog, Detail: p.Detail}
	if p.Kind == "pin" || p.Kind == Key {
		f.From, f.To = -1, -1
	}
	if named {
		f.Kind, f.Detail = Named, p.Kind+": "+f.Detail
		r.Completeness.add(f)
	} else {
		r.Integrity.add(f)
	}
	r.Integrity.close()
	r.Completeness.close()
}

// HoldAgainst holds the proven entries against the log that they were derived from. A log that
// was put back to an earlier state, with all notes, ends before them.
func (r *Report) HoldAgainst(streams audit.Report) {
	from := streams.Entries
	for _, p := range slices.Concat(streams.Problems, streams.Restored) { // known already
		if p.Kind == "truncated" || p.Kind == restored {
			from = max(from, p.To+1)
		}
	}
	for _, l := range r.Logs {
		if end := l.Base + l.Size; end > from {
			r.Integrity.add(Finding{
				Kind: "truncated", Log: l.Origin, From: from, To: end - 1, File: inTheLog,
				Detail: "the log ends before them, and the trail's files have them: the log was put back to an earlier state",
			})
			from = end
		}
	}
	r.Integrity.close()
}
