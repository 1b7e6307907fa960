package audit

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Generation is a run of entries with a Merkle tree, an origin and a key of its own. A
// trail has one, unless its tree could not be continued: the key was lost, or entries
// are gone together with their kept hashes. Then the next entry opens a new generation.
// It names the old one, so nothing is rewritten in silence; the signed part of the old
// one can still be checked against its own checkpoints.
type Generation struct {
	// Base is the index of its first entry. This entry is leaf 0 of its tree.
	Base int64 `json:"base"`
	// Origin is the first line of its checkpoints, and the name of its key.
	Origin string `json:"origin"`
	// PublicKey is in the note form; empty where it is not known any more.
	PublicKey string `json:"public_key,omitempty"`
	// Size is how many entries its newest good checkpoint covers, Root their hash.
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	// Endorsed: the key of the generation before named this one's in a signed entry, or is
	// the same under another name. Without it nobody but the key itself says whose it is.
	Endorsed bool `json:"endorsed,omitempty"`
}

// The types of the trail's entries about itself.
const (
	// TypeGeneration opens a generation; its Detail is an [Opening].
	TypeGeneration = "trail.generation"
	// TypeDamaged names damage; its Detail is a naming.
	TypeDamaged = "trail.damaged"
	// TypeCheckpoint is of no entry: it is the type of an event with a checkpoint.
	TypeCheckpoint = "trail.checkpoint"
)

const (
	// OwnProject and ownSubject are the resource of the trail's own entries.
	OwnProject = "auditrelay"
	ownSubject = "audit_trail"
	// maxProblems bounds how many problems one entry names.
	maxProblems = 100
)

// Opening is the Detail of TypeGeneration.
type Opening struct {
	Reason string `json:"reason"`
	// Key is the public key of the new generation.
	Key string `json:"key"`
	// Previous is the ended generation, and Checkpoint its newest signed note.
	Previous   *Generation `json:"previous,omitempty"`
	Checkpoint string      `json:"checkpoint,omitempty"`
	// Found is the Merkle tree hash over the leaf hashes of all entries before this
	// one, 32 zero bytes for a missing entry.
	Found found `json:"found"`
	naming
}

type found struct {
	Entries int64     `json:"entries"`
	Root    tlog.Hash `json:"root"`
}

// naming is the Detail of TypeDamaged.
type naming struct {
	Problems []tlogproof.Finding `json:"problems,omitempty"`
	// Salvage is the folder with copies of the damaged files, if there is one.
	Salvage string `json:"salvage,omitempty"`
}

// lostLeaf stands in the tree for an entry lost before it was signed.
func lostLeaf(index int64) tlog.Hash { return tlog.RecordHash(tlogproof.LostLeaf(index)) }

// isOwn reports whether an entry is about the trail itself.
func (e *Entry) isOwn() bool { return e.Project == OwnProject && e.Subject == ownSubject }

// ownAddition is an entry about the trail itself, on its way.
func (t *Trail) ownAddition(kind string, detail any) (*addition, error) {
	raw, err := json.Marshal(detail)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return t.addition(Entry{Type: kind, Project: OwnProject, Subject: ownSubject, Time: time.Now(), Detail: raw}, anyEntry)
}
