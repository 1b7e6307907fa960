package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/proof"
)

// Streams is the report of a trail without files for public tools.
func Streams(streams audit.Report, o Options) Report {
	r := Report{Trusted: o.Policy != nil, Entries: streams.Signed, Checkpoints: int64(streams.Checkpoints)}
	for _, g := range streams.Generations {
		r.Logs = append(r.Logs, Log{Origin: g.Origin, Key: g.PublicKey, Base: g.Base, Size: g.Size, Root: g.Root})
		if o.Policy == nil || g.Size == 0 {
			continue
		}
		own, err := PolicyFor(*o.Policy, g.Origin)
		if err == nil && !proof.SamePublicKey(own.Logs[0].Key, g.PublicKey) {
			err = fmt.Errorf("it is signed with the key %s, not with the trusted one", g.PublicKey)
		}
		if err != nil {
			r.Integrity.add(Finding{Kind: Key, Log: g.Origin, From: -1, To: -1, Detail: err.Error()})
		}
	}
	r.Integrity.close()
	r.Completeness.close()
	return r
}

// AddNewer adds the newer part of the streams: the newest checkpoint, if the relay
// stopped before it was among the files, and the entries behind it, left unsigned by a
// killed relay.
func (r *Report) AddNewer(streams audit.Report) {
	for i := range r.Logs {
		l := &r.Logs[i]
		for _, g := range streams.Generations {
			if g.Origin == l.Origin && g.PublicKey == l.Key && g.Size > l.Size {
				r.Entries += g.Size - l.Size
				l.Size, l.Root, l.Signed, l.Witnesses = g.Size, g.Root, time.Time{}, nil
			}
		}
	}
	if streams.Entries <= streams.Signed {
		return
	}
	r.Completeness.add(Finding{
		Kind: NotCovered, From: streams.Signed, To: streams.Entries - 1, File: "the trail's streams",
		Detail: "no checkpoint covers them yet; the relay signs them at its next start",
	})
	r.Completeness.close()
}

// AddStreams adds a problem of the trail's streams. One named by the trail itself, in a
// signed entry, counts against completeness.
func (r *Report) AddStreams(p audit.Problem, named bool) {
	f := Finding{Kind: p.Kind, From: p.From, To: p.To, File: "the trail's streams", Detail: p.Detail}
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

// HoldAgainst holds the proven entries against the streams they were derived from. Streams
// put back to an earlier state, with all notes beside them, end before them.
func (r *Report) HoldAgainst(streams audit.Report) {
	from := streams.Entries
	for _, p := range slices.Concat(streams.Problems, streams.Restored) { // known already
		if p.Kind == "truncated" || p.Kind == "restored" {
			from = max(from, p.To+1)
		}
	}
	for _, l := range r.Logs {
		if end := l.Base + l.Size; end > from {
			r.Integrity.add(Finding{
				Kind: "truncated", Log: l.Origin, From: from, To: end - 1, File: "the trail's streams",
				Detail: "the streams end before them, and the trail's files have them: the streams were put back to an earlier state",
			})
			from = end
		}
	}
	r.Integrity.close()
}
