package audit

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Kept is a kept checkpoint with a good signature.
type Kept struct {
	// Seq numbers the kept checkpoints of all generations, from 1.
	Seq uint64
	// Base is the first index of its generation, Origin and PublicKey are its signer's.
	Base              int64
	Origin, PublicKey string
	// Note is the signed note, verbatim.
	Note string
	// Size and Root are of the generation's tree.
	Size int64
	Root tlog.Hash
	// Leaves are the leaf hashes of the generation's entries [Size-len(Leaves), Size), as the
	// trail keeps them. Only the root vouches for them.
	Leaves []tlog.Hash
	// Time is when it was signed.
	Time time.Time
}

// Name is the key's, without its last part: with ORIGIN+HASH begin the ids of events.
func (k *Kept) Name() string { return nameOf(k.PublicKey) }

// kept decodes a record of the log of checkpoints.
func kept(r *store.Record) (Kept, error) {
	c, err := decodeKept(r)
	if err != nil {
		return Kept{}, err
	}
	return Kept{
		Seq: c.seq, Base: c.base, Origin: tlogproof.NoteOrigin([]byte(c.text)), PublicKey: c.public,
		Note: c.text, Size: c.size, Root: c.root, Leaves: c.leaves, Time: c.signedAt.UTC(),
	}, nil
}
