package verify

import (
	"fmt"

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
			err = fmt.Errorf("it is signed with the key %s, which is not the trusted one", g.PublicKey)
		}
		if err != nil {
			r.Integrity.add(Finding{Kind: Key, Log: g.Origin, From: -1, To: -1, Detail: err.Error()})
		}
	}
	r.Integrity.close()
	r.Completeness.close()
	return r
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
