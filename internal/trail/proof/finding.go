package proof

import "fmt"

// The kinds of findings that tell the fate of entries unlike the signed ones.
const (
	KindAltered   = "altered"   // it is another one
	KindMissing   = "missing"   // it is nowhere
	KindMoved     = "moved"     // it stands in another's place
	KindTruncated = "truncated" // the log ends before it
	KindMisfiled  = "misfiled"  // it stands under another resource, or in another form
	KindUnproven  = "unproven"  // it is under no signed root
	KindRestored  = "restored"  // it is damaged in the log, and read from the trail's files
)

// The kinds of other findings against a trail's integrity.
const (
	KindCheckpoint = "checkpoint" // a missing, unsigned or older one
	KindHistory    = "history"    // two histories: signed roots in contradiction
	KindKey        = "key"        // a key that is lost, or that nobody vouches for
	KindPin        = "pin"        // the checkpoint next to the key
	KindForwarded  = "forwarded"  // an entry that the sinks or the trail's files have, and that the trail contradicts
	KindTile       = "tile"       // a file of hashes, damaged or missing; the entries below it may be good
	KindQuorum     = "quorum"     // too few witnesses
	KindImitation  = "imitation"  // events that look like the trail's and are not
)

// The kinds of findings against a trail's completeness.
const (
	KindLost       = "lost"        // entries lost before they were signed, as the trail itself says
	KindNamed      = "named"       // damage named by the trail itself
	KindLooks      = "looks"       // times without a look at settings
	KindHeartbeat  = "heartbeat"   // times without a signature
	KindSpan       = "span"        // events without a digest
	KindUnwitness  = "unwitnessed" // entries without a quorum yet
	KindOmitted    = "omitted"     // entries with only a hash in their event
	KindNotCovered = "unsigned"    // entries after the newest checkpoint
)

// Finding is something that is wrong with a trail.
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

// OfCheckpoints reports whether From and To number checkpoints.
func (f Finding) OfCheckpoints() bool { return f.Kind == KindCheckpoint || f.Kind == KindHistory }

func (f Finding) String() string {
	noun, nouns := "entry", "entries"
	if f.OfCheckpoints() {
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

// Adjoin adds a finding, or lengthens one of the newest three, if it ends just before f and says
// the same.
func Adjoin(list []Finding, f Finding) []Finding {
	for i := len(list) - 1; i >= max(0, len(list)-3) && f.From >= 0; i-- {
		last := &list[i]
		if last.Kind == f.Kind && last.Log == f.Log && last.File == f.File && last.Detail == f.Detail && last.To == f.From-1 {
			last.To = f.To
			return list
		}
	}
	return append(list, f)
}
