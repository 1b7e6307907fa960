package audit

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	tnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
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

// Kept is a kept checkpoint with a good signature.
type Kept struct {
	// Seq numbers the kept checkpoints of all generations, from 1: it is the position in the log of
	// checkpoints. 0: it is not from there.
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
	Signing

	edge []tlog.Hash // of the tree before Leaves
}

// repeats reports whether c signs the tree of old again: a heartbeat.
func (c *Kept) repeats(old *Kept) bool {
	return c.Base == old.Base && c.Size == old.Size && c.Root == old.Root && c.PublicKey == old.PublicKey && len(c.Leaves) == 0
}

// from is the index of the first of leaves.
func (c *Kept) from() int64 { return c.Size - int64(len(c.Leaves)) }

// tree is the right edge of a generation's Merkle tree.
type tree = tlogproof.Edge

// before is the tree before c's own leaves, and whether its hashes are those of such a tree.
func (c *Kept) before() (tree, bool) { return tlogproof.EdgeOf(c.from(), c.edge) }

// at is the tree of n leaves, as c's own hashes give it, if they give its root.
func (c *Kept) at(n int64) (tree, bool) {
	before, ok := c.before()
	if !ok || before.With(c.Leaves...).Root() != c.Root || n < c.from() || n > c.Size {
		return tree{}, false
	}
	return before.With(c.Leaves[:n-c.from()]...), true
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
func openCheckpoint(public string, signed []byte) (Kept, error) {
	made, at, err := tlogproof.OpenAs(public, signed)
	if err != nil {
		return Kept{}, fmt.Errorf("check signature: %w", err)
	}
	return Kept{Base: tlogproof.BaseOf(made.Origin), Origin: made.Origin, PublicKey: public, Note: string(signed), Size: made.Size, Root: made.Root, Signing: SigningOf(&made, at)}, nil
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
func decodeKept(r *store.Record) (Kept, error) {
	kept := keptCheckpoint{}
	if err := json.Unmarshal(r.Data, &kept); err != nil {
		return Kept{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	c, err := openCheckpoint(kept.Key, []byte(kept.Note))
	if err != nil {
		return Kept{}, err
	}
	if !kept.Time.Equal(c.Time) {
		return Kept{}, fmt.Errorf("checkpoint is said to be of %s, and signed as of %s", kept.Time.Format(time.RFC3339), c.Time.Format(time.RFC3339))
	}
	c.Seq = uint64(r.Pos)
	if leaves := tlogproof.SplitHashes(kept.Leaves); int64(len(leaves)) <= c.Size {
		c.Leaves, c.edge = leaves, tlogproof.SplitHashes(kept.Edge)
	}
	return c, nil
}

// noteSigner is a [note.Signer] of a key, under one of its two hashes.
type noteSigner struct {
	name string
	hash uint32
	sign func(msg []byte) ([]byte, error)
}

func (s noteSigner) Name() string                    { return s.name }
func (s noteSigner) KeyHash() uint32                 { return s.hash }
func (s noteSigner) Sign(msg []byte) ([]byte, error) { return s.sign(msg) }

// signNote signs a text, and signs it again with a time: C2SP tlog-cosignature,
// cosignature/v1 with Ed25519, under the key's own name. The library does the latter
// with a secret only, and ours may be in another program.
func signNote(ctx context.Context, key keyPair, text string, at time.Time) ([]byte, error) {
	timestamps, err := tnote.NewVerifierForCosignatureV1(key.public)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	plain := func(msg []byte) ([]byte, error) { return key.sign(ctx, msg) }
	timed := func(msg []byte) ([]byte, error) {
		seconds := uint64(at.Unix())
		sig, err := key.sign(ctx, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, msg))
		return append(binary.BigEndian.AppendUint64(nil, seconds), sig...), err
	}
	return note.Sign(&note.Note{Text: text},
		noteSigner{key.Name(), key.verifier.KeyHash(), plain}, noteSigner{key.Name(), timestamps.KeyHash(), timed})
}
