package proof

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	proofHeader = "c2sp.org/tlog-proof@v1"
	// Extension ends the name of a file with a proof.
	Extension = ".tlog-proof"
)

// Proof proves a leaf of a log: https://c2sp.org/tlog-proof.
type Proof struct {
	// Extra is data for an application; nothing vouches for it. Nil: none.
	Extra []byte
	// Index is the leaf's place in the log, from 0.
	Index int64
	// Hashes are the inclusion proof (RFC 6962, section 2.1.1), from the leaf's sibling up.
	Hashes tlog.RecordProof
	// Checkpoint is the signed note, verbatim, with all its signatures.
	Checkpoint []byte
}

// Marshal gives the file's bytes.
func (p Proof) Marshal() []byte {
	file := []byte(proofHeader + "\n")
	if p.Extra != nil {
		file = fmt.Appendf(file, "extra %s\n", base64.StdEncoding.EncodeToString(p.Extra))
	}
	file = fmt.Appendf(file, "index %d\n", p.Index)
	for _, h := range p.Hashes {
		file = fmt.Appendf(file, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
	}
	return append(append(file, '\n'), p.Checkpoint...)
}

// maxProofHashes is the height of the highest tree: 2^63 leaves.
const maxProofHashes = 63

// ParseProof reads a file's bytes. It proves nothing yet: see [Proof.Verify].
func ParseProof(data []byte) (Proof, error) {
	// A checkpoint has an empty line of its own, before its signatures.
	head, checkpoint, found := strings.Cut(string(data), "\n\n")
	lines := strings.Split(head, "\n")
	if !found || lines[0] != proofHeader {
		return Proof{}, fmt.Errorf("parse proof: it does not begin with the line %q, or has no checkpoint", proofHeader)
	}
	p := Proof{Checkpoint: []byte(checkpoint)}
	lines = lines[1:]
	var err error
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		if p.Extra, err = parseBase64(strings.TrimPrefix(lines[0], "extra ")); err != nil {
			return Proof{}, fmt.Errorf("parse proof: its extra data: %w", err)
		}
		lines = lines[1:]
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return Proof{}, errors.New("parse proof: it has no line with the index")
	}
	if p.Index, err = ParseDecimal(strings.TrimPrefix(lines[0], "index ")); err != nil {
		return Proof{}, fmt.Errorf("parse proof: its index: %w", err)
	}
	if lines = lines[1:]; len(lines) > maxProofHashes {
		return Proof{}, fmt.Errorf("parse proof: %d hashes are more than the %d of the highest tree", len(lines), maxProofHashes)
	}
	for _, line := range lines {
		h, err := ParseHash(line)
		if err != nil {
			return Proof{}, fmt.Errorf("parse proof: a hash: %w", err)
		}
		p.Hashes = append(p.Hashes, h)
	}
	return p, nil
}

// parseBase64 reads base64 in its one spelling: the decoder passes over carriage returns.
func parseBase64(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil && base64.StdEncoding.EncodeToString(raw) != text {
		err = errors.New("it is not in the usual spelling of base64")
	}
	return raw, err
}

// Verify checks the checkpoint's signatures against the policy, and its tree for leaf,
// the hash of a record's leaf (see [LeafHash]), at the proof's index.
func (p Proof) Verify(leaf tlog.Hash, policy Policy) (Checkpoint, Cosigned, error) {
	c, by, err := policy.Open(p.Checkpoint)
	if err != nil {
		return Checkpoint{}, Cosigned{}, fmt.Errorf("verify proof: %w", err)
	}
	if p.Index >= c.Size {
		return Checkpoint{}, Cosigned{}, fmt.Errorf("verify proof: its checkpoint covers %d entries, not entry %d", c.Size, p.Index)
	}
	if !IsInTree(p.Hashes, c.Size, c.Root, p.Index, leaf) {
		return Checkpoint{}, Cosigned{}, fmt.Errorf("verify proof: the record is not entry %d of the signed tree", p.Index)
	}
	return c, by, nil
}

// IsInTree reports whether a path (RFC 6962, section 2.1.1) leads from a leaf, at an index, to
// the root of a tree of size leaves. All of it may come from a stranger: of a tree larger than
// [MaxSize] nothing is shown.
func IsInTree(path tlog.RecordProof, size int64, root tlog.Hash, index int64, leaf tlog.Hash) bool {
	return size <= MaxSize && tlog.CheckRecord(path, size, root, index, leaf) == nil
}
