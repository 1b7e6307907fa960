package audit

import (
	"fmt"
	"strings"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Report is the result of [VerifyOffline].
type Report struct {
	// Entries counts all entries, Signed those covered by the newest good checkpoint;
	// no signature covers the rest yet.
	Entries, Signed int64
	// Checkpoints whose signature and root are good.
	Checkpoints int
	// Gaps are times without a heartbeat while a relay ran, the oldest first. They are
	// no damage, and the trail does not name them.
	Gaps []Gap
	// Generations, the oldest first; one where the tree was never broken.
	Generations []Generation
	// Problems, none where the trail is whole. Problems named by the trail itself, in a
	// signed entry, are among them: they stay.
	Problems []tlogproof.Finding
	// Restored are entries that are lost or damaged in the log, and that are read from the
	// trail's files, since their leaf hashes are the signed ones. They are no problems, and
	// settled once the trail names them: see [Evidence].Files.
	Restored []tlogproof.Finding
}

// maxNamed bounds how many problems an error spells out.
const maxNamed = 20

func spellOut(problems []tlogproof.Finding) string {
	var texts []string
	for _, p := range problems[:min(len(problems), maxNamed)] {
		texts = append(texts, p.String())
	}
	if more := len(problems) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
