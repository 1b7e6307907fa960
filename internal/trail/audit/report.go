package audit

import (
	"fmt"
	"strings"
)

// Report is the result of [Trail.Verify].
type Report struct {
	// Entries counts all entries, Signed those covered by the newest good checkpoint;
	// no signature covers the rest yet.
	Entries, Signed int64
	// Checkpoints whose signature and root are good.
	Checkpoints int
	// Heartbeats are the checkpoints of an unchanged tree.
	Heartbeats int
	// Gaps are times without a heartbeat while a relay ran, the oldest first. They are
	// no damage, and the trail does not name them.
	Gaps []Gap
	// Generations, the oldest first; one where the tree was never broken.
	Generations []Generation
	// Problems, none where the trail is whole. Problems named by the trail itself, in a
	// signed entry, are among them: they stay.
	Problems []Problem
	// Restored are entries that are lost or damaged in the log, and that are read from the
	// trail's files, since their leaf hashes are the signed ones. They are no problems, and
	// settled once the trail names them: see [Evidence].Files.
	Restored []Problem
}

// Problem is a run of entries, or of checkpoints, unlike the signed ones.
type Problem struct {
	// Kind is altered, moved, truncated, missing, misfiled or unproven,
	// of entries; restored, in Report.Restored; checkpoint; pin, of the checkpoint next to
	// the key; key; or forwarded, of the newest entry known to the sinks or to the trail's
	// files.
	Kind string `json:"kind"`
	// From and To are the first and the last index concerned, or the numbers of the
	// checkpoints from 1; 0 for the pin and the key.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Detail says more.
	Detail string `json:"detail"`
}

func (p Problem) String() string {
	noun, one := "entries", "entry"
	switch p.Kind {
	case "pin", "key", "forwarded":
		return p.Detail
	case "checkpoint":
		noun, one = "checkpoints", "checkpoint"
	}
	where, kind := fmt.Sprintf("%s %d", one, p.From), " "+p.Kind
	if p.To > p.From {
		where = fmt.Sprintf("%s %d to %d", noun, p.From, p.To)
	}
	if p.Kind == "checkpoint" {
		kind = ""
	}
	return where + kind + ": " + p.Detail
}

// adjoin adds a problem, or lengthens one of the newest two that is of its kind and ends just before
// it.
func adjoin(list []Problem, p Problem) []Problem {
	for k := len(list) - 1; k >= max(0, len(list)-2); k-- {
		if q := &list[k]; q.Kind == p.Kind && q.Detail == p.Detail && q.To == p.From-1 {
			q.To = p.To
			return list
		}
	}
	return append(list, p)
}

// maxNamed bounds how many problems an error spells out.
const maxNamed = 20

// Err is nil where there is no problem, else ErrDamaged with the problems.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDamaged, spellOut(r.Problems))
}

func spellOut(problems []Problem) string {
	var text strings.Builder
	for i, p := range problems {
		if i == maxNamed {
			fmt.Fprintf(&text, "; and %d more", len(problems)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(p.String())
	}
	return text.String()
}
