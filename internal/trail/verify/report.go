package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Report has two verdicts on a trail, and its proven logs.
type Report struct {
	// Trusted is whether signatures were held against a key or policy from outside. Without
	// one, only consistency is shown: whoever can write the files can sign them too.
	Trusted bool  `json:"trusted"`
	Logs    []Log `json:"logs"`
	// Entries counts the entries proven by a signed root.
	Entries int64 `json:"entries"`
	// Checkpoints counts the good signatures, of the history too.
	Checkpoints int64 `json:"checkpoints"`
	// Archived are the entries whose bundles were moved to an archive, as the trail itself
	// says. Only their hashes were checked.
	Archived []Archived `json:"archived,omitempty"`
	// Settled is damage that cost nothing, and that the trail itself names: entries that are
	// damaged in the log, and that are proven from the trail's files. It counts against no
	// verdict.
	Settled []proof.Finding `json:"settled,omitempty"`
	// Apart are events of a sink's copy that look like the trail's and are not: pushed ones that
	// imitate entries, and those of other programs. They count for nothing, and against nothing.
	Apart Apart `json:"apart,omitzero"`
	// Integrity: the bytes are the signed ones, and there is one history.
	Integrity Verdict `json:"integrity"`
	// Completeness: the trail has recorded everything it had to.
	Completeness Verdict `json:"completeness"`
}

// Log is one generation of a trail.
type Log struct {
	Origin string    `json:"origin"`
	Key    string    `json:"key"` // of its checkpoints
	Base   int64     `json:"base"`
	Size   int64     `json:"size"` // of the newest proven checkpoint; 0: nothing is proven
	Root   tlog.Hash `json:"root"`
	// Signed is when the log signed it, as far as it says.
	Signed time.Time `json:"signed,omitzero"`
	// Witnesses have cosigned it; their names.
	Witnesses []string `json:"witnesses,omitempty"`
}

// Archived is a run of entries in an archive, the last one included.
type Archived struct {
	Log   string `json:"log"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Where string `json:"where"` // the archive's folder when it was made
}

// Apart counts events that are none of the trail's, and names the first of them.
type Apart struct {
	Events   int64           `json:"events"`
	Findings []proof.Finding `json:"findings"`
}

const (
	mostApart = 100
	// mostFindings bounds the findings of a verdict: hostile files have millions.
	mostFindings = 10_000
)

func (r *Report) settle(f proof.Finding) {
	if len(r.Settled) < mostFindings {
		r.Settled = append(r.Settled, f)
	}
}

func (r *Report) setApart(f proof.Finding) {
	if r.Apart.Events++; len(r.Apart.Findings) < mostApart {
		r.Apart.Findings = append(r.Apart.Findings, f)
	}
}

// Verdict holds where something was checked, and nothing was found against it.
type Verdict struct {
	Holds    bool            `json:"holds"`
	Findings []proof.Finding `json:"findings"`
	// More findings were left out, as there are so many.
	More int64 `json:"more,omitempty"`
}

// add keeps a finding, unless there are too many.
func (v *Verdict) add(f proof.Finding) {
	v.Findings = proof.Adjoin(v.Findings, f)
	if len(v.Findings) > mostFindings {
		v.Findings = v.Findings[:mostFindings]
		v.More++
	}
}

// about adds a finding about a whole log, or a file of it.
func (v *Verdict) about(kind, log, file, format string, args ...any) {
	v.run(kind, log, -1, -1, file, format, args...)
}

// run adds a finding about the entries, or checkpoints, from one to another.
func (v *Verdict) run(kind, log string, from, to int64, file, format string, args ...any) {
	v.add(proof.Finding{Kind: kind, Log: log, From: from, To: to, File: file, Detail: fmt.Sprintf(format, args...)})
}

// end is the first index after the proven entries.
func (r *Report) end() (end int64) {
	for _, l := range r.Logs {
		end = max(end, l.Base+l.Size)
	}
	return end
}

// RefuseEmpty takes the verdicts back where no entry is proven: integrity does not hold where
// nothing was checked. An empty trail, or one put back to its first checkpoint, is no proof of
// anything.
func (r *Report) RefuseEmpty() {
	if r.Entries > 0 {
		return
	}
	if r.Integrity.Holds && r.Completeness.Holds {
		r.Completeness.about(proof.KindMissing, "", "", "no entry is under a signed root: the trail is empty, or was put back to its beginning")
		r.Completeness.close()
	}
	r.Integrity.Holds = false
}

// close gives both verdicts.
func (r *Report) close() {
	r.Integrity.close()
	r.Completeness.close()
}

// close sorts the findings, and gives the verdict.
func (v *Verdict) close() {
	slices.SortStableFunc(v.Findings, func(a, b proof.Finding) int { return cmp.Compare(a.From, b.From) })
	if v.Findings == nil {
		v.Findings = []proof.Finding{} // a list in JSON too
	}
	v.Holds = len(v.Findings) == 0
}
