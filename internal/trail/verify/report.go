package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/truth"
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
	Settled []Finding `json:"settled,omitempty"`
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
	Events   int64     `json:"events"`
	Findings []Finding `json:"findings"`
}

const (
	mostApart = 100
	// mostFindings bounds the findings of a verdict: hostile files have millions.
	mostFindings = 10_000
)

func (r *Report) settle(f Finding) {
	if len(r.Settled) < mostFindings {
		r.Settled = append(r.Settled, f)
	}
}

func (r *Report) setApart(f Finding) {
	if r.Apart.Events++; len(r.Apart.Findings) < mostApart {
		r.Apart.Findings = append(r.Apart.Findings, f)
	}
}

// Verdict holds where something was checked, and nothing was found against it.
type Verdict struct {
	Holds    bool      `json:"holds"`
	Findings []Finding `json:"findings"`
	// More findings were left out, as there are so many.
	More int64 `json:"more,omitempty"`
}

// The kinds of findings about integrity.
const (
	Altered    = truth.Altered
	Missing    = truth.Missing
	Moved      = truth.Moved
	Unproven   = "unproven"   // entries under no signed root
	Tile       = "tile"       // a file of hashes, damaged or missing; the entries below it may be good
	Checkpoint = "checkpoint" // a missing, unsigned or older one
	History    = "history"    // two histories: signed roots in contradiction
	Key        = "key"        // a key without a voucher
	Quorum     = "quorum"     // too few witnesses
	Imitation  = "imitation"  // events that look like the trail's and are not; see Report.Apart
	Archive    = "archive"    // entries missing from a given archive, or unlike the signed ones there
)

// The kinds of findings about completeness.
const (
	Lost       = "lost"        // entries lost before they were signed, as the trail itself says
	Named      = "named"       // damage named by the trail itself
	Looks      = "looks"       // times without a look at settings
	Heartbeat  = "heartbeat"   // times without a signature
	Span       = "span"        // events without a digest
	Unwitness  = "unwitnessed" // entries without a quorum yet
	Omitted    = "omitted"     // entries with only a hash in their event
	NotCovered = "unsigned"    // entries after the newest checkpoint
)

// restored is the kind of entries that are damaged in the log, and that are read from the
// trail's files.
const restored = "restored"

// Finding is something against a verdict.
type Finding struct {
	Kind string `json:"kind"`
	// Log is the origin of the generation; empty for the whole trail.
	Log string `json:"log,omitempty"`
	// From and To are the first and last entry concerned, by index over all generations, or
	// of kind checkpoint and history the checkpoints' numbers; both -1: neither.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// File is the damaged file, below the log.
	File   string `json:"file,omitempty"`
	Detail string `json:"detail"`
}

func (f Finding) String() string {
	noun, nouns := "entry", "entries"
	if f.Kind == Checkpoint || f.Kind == History {
		noun, nouns = "checkpoint", "checkpoints"
	}
	text := f.Kind
	switch {
	case f.From < 0:
	case f.From == f.To:
		text += fmt.Sprintf(": %s %d", noun, f.From)
	default:
		text += fmt.Sprintf(": %s %d to %d", nouns, f.From, f.To)
	}
	if f.File != "" {
		text += ": " + f.File
	}
	return text + ": " + f.Detail
}

// OfBundle reports whether the finding is a missing entry bundle.
func (f Finding) OfBundle() bool { return f.Kind == Missing && f.Detail == notThere }

// OfFiles reports whether the finding is about damaged or lost files. The others are about what
// was signed: gaps in the numbers of the checkpoints, or two histories.
func (f Finding) OfFiles() bool { return f.Kind != History && (f.Kind != Checkpoint || f.From < 0) }

// add keeps a finding, or lengthens the newest one of its kind, if it ends just before f.
func (v *Verdict) add(f Finding) {
	for i := len(v.Findings) - 1; i >= max(0, len(v.Findings)-3); i-- {
		p := &v.Findings[i]
		if f.From >= 0 && p.Kind == f.Kind && p.Log == f.Log && p.File == f.File && p.Detail == f.Detail && p.To == f.From-1 {
			p.To = f.To
			return
		}
	}
	if len(v.Findings) == mostFindings {
		v.More++
		return
	}
	v.Findings = append(v.Findings, f)
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
		r.Completeness.add(Finding{Kind: Missing, From: -1, To: -1, Detail: "no entry is under a signed root: the trail is empty, or was put back to its beginning"})
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
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return cmp.Compare(a.From, b.From) })
	if v.Findings == nil {
		v.Findings = []Finding{} // a list in JSON too
	}
	v.Holds = len(v.Findings) == 0
}
