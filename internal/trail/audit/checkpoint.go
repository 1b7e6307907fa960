package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// maxLeaves bounds the leaf hashes kept with one checkpoint: 350 KB of JSON.
const maxLeaves = 8192

// keptCheckpoint is one record of the log of checkpoints.
type keptCheckpoint struct {
	// Note is the signed note, verbatim: C2SP tlog-checkpoint.
	Note string `json:"checkpoint"`
	// Leaves are the leaf hashes added to the tree since the checkpoint before, joined.
	// The signed root vouches for them, so they name the altered entry itself, not only
	// the two checkpoints around it.
	Leaves []byte `json:"leaves"`
	// Edge is the right edge of the tree before Leaves. With it a checkpoint
	// proves its own entries even where those before it cannot be proven.
	Edge []byte `json:"edge"`
	// Key is the public key, in the note form: with it the checkpoint can be
	// checked when the signing key is lost.
	Key string `json:"key"`
	// Time is when it was signed, as the note's timestamp says.
	Time time.Time `json:"time,omitzero"`
}

// checkpoint is a keptCheckpoint whose signature is good.
type checkpoint struct {
	seq      uint64 // its position in the log of checkpoints; 0 for the one next to the key
	base     int64  // index of its generation's first entry
	public   string // of the signature
	text     string // the signed note
	size     int64  // entries of its generation
	root     tlog.Hash
	leaves   []tlog.Hash // of entries [size-len(leaves), size)
	edge     []tlog.Hash // of the tree before leaves
	signedAt time.Time   // by its timestamp; zero where it is not

	// promised is whether the next checkpoint is due in the time of within, 0 for never.
	within   time.Duration
	promised bool
}

// repeats reports whether c signs the tree of old again: a heartbeat.
func (c *checkpoint) repeats(old *checkpoint) bool {
	return c.base == old.base && c.size == old.size && c.root == old.root && c.public == old.public && len(c.leaves) == 0
}

// from is the index of the first of leaves.
func (c *checkpoint) from() int64 { return c.size - int64(len(c.leaves)) }

// tree is the right edge of a generation's Merkle tree.
type tree = tlogproof.Edge

// before is the tree before c's own leaves, and whether its hashes are those of such a tree.
func (c *checkpoint) before() (tree, bool) { return tlogproof.EdgeOf(c.from(), c.edge) }

// alone is the tree of c's own hashes, and whether its root is signed.
func (c *checkpoint) alone() (tree, bool) {
	before, ok := c.before()
	t := before.With(c.leaves...)
	return t, ok && t.Root() == c.root
}

// signCheckpoint gives the signed note of t, with an extension line or "", and with the
// key's timestamp.
func signCheckpoint(ctx context.Context, key keyPair, t tree, extension string, at time.Time) ([]byte, error) {
	root := t.Root()
	text := fmt.Sprintf("%s\n%d\n%s\n%s", key.Name(), t.Len(), base64.StdEncoding.EncodeToString(root[:]), extension)
	signed, err := signNote(ctx, key, text, at)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return signed, nil
}

// openCheckpoint checks the signature of a note, and reads it.
func openCheckpoint(public string, signed []byte) (checkpoint, error) {
	made, at, err := tlogproof.OpenAs(public, signed)
	if err != nil {
		return checkpoint{}, fmt.Errorf("check signature: %w", err)
	}
	c := checkpoint{base: tlogproof.BaseOf(made.Origin), public: public, text: string(signed), size: made.Size, root: made.Root, signedAt: at}
	c.within, c.promised = ReadPromise(strings.Join(made.Extensions, "\n"))
	return c, nil
}

// encodeKept makes a record for the log of checkpoints: signed is the note of before with
// leaves appended, made at a time.
func encodeKept(key keyPair, signed []byte, at time.Time, before tree, leaves []tlog.Hash) (store.Draft, error) {
	data, err := json.Marshal(keptCheckpoint{
		Note: string(signed), Leaves: tlogproof.JoinHashes(leaves), Edge: tlogproof.JoinHashes(before.Full()), Key: key.public, Time: at.UTC().Truncate(time.Second),
	})
	if err != nil {
		return store.Draft{}, fmt.Errorf("encode checkpoint: %w", err)
	}
	return store.Draft{Kind: kindCheckpoint, Data: data}, nil
}

// decodeKept decodes the form of encodeKept. Hashes without sense are left out: they
// help to name damage, and the signature does not cover them.
func decodeKept(r *store.Record) (checkpoint, error) {
	kept := keptCheckpoint{}
	if err := json.Unmarshal(r.Data, &kept); err != nil {
		return checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	c, err := openCheckpoint(kept.Key, []byte(kept.Note))
	if err != nil {
		return checkpoint{}, err
	}
	if !kept.Time.Equal(c.signedAt) {
		return checkpoint{}, fmt.Errorf("checkpoint is said to be of %s, and signed as of %s", kept.Time.Format(time.RFC3339), c.signedAt.UTC().Format(time.RFC3339))
	}
	c.seq = uint64(r.Pos)
	if leaves := tlogproof.SplitHashes(kept.Leaves); int64(len(leaves)) <= c.size {
		c.leaves, c.edge = leaves, tlogproof.SplitHashes(kept.Edge)
	}
	return c, nil
}
