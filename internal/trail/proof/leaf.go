package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// MaxLeaf is the longest leaf of an entry bundle, in bytes: its length has 16 bits
// (https://c2sp.org/tlog-tiles).
const MaxLeaf = 1<<16 - 1

// LeafData is the leaf of a record: the record itself, or its digest where it is longer
// than [MaxLeaf]. No record looks like a digest: each has a type.
func LeafData(record []byte) []byte {
	if len(record) <= MaxLeaf {
		return record
	}
	return Digest{Bytes: int64(len(record)), SHA256: sha256.Sum256(record)}.Leaf()
}

// LeafHash is the Merkle hash of a record's leaf (RFC 6962, section 2.1).
func LeafHash(record []byte) tlog.Hash { return tlog.RecordHash(LeafData(record)) }

// LostLeaf is the leaf of an entry lost before it was signed. No record looks like it.
func LostLeaf(index int64) []byte { return fmt.Appendf(nil, `{"lost_entry":%d}`, index) }

// Digest stands in the tree for a record longer than [MaxLeaf].
type Digest struct {
	Bytes  int64 // of the record
	SHA256 [sha256.Size]byte
}

const digestForm = `{"record_bytes":%d,"record_sha256":"%x"}`

// Leaf is the digest as a leaf.
func (d Digest) Leaf() []byte {
	return fmt.Appendf(nil, digestForm, d.Bytes, d.SHA256)
}

// Path is where a log keeps the record: "records/SHA256", in hex.
func (d Digest) Path() string { return "records/" + hex.EncodeToString(d.SHA256[:]) }

// Of reports whether d is the digest of record.
func (d Digest) Of(record []byte) bool {
	return int64(len(record)) == d.Bytes && sha256.Sum256(record) == d.SHA256
}

// ParseDigest reports whether a leaf is the digest of a long record, in the spelling of
// [LeafData].
func ParseDigest(leaf []byte) (d Digest, isDigest bool) {
	if !bytes.HasPrefix(leaf, []byte(`{"record_bytes":`)) {
		return Digest{}, false
	}
	var sum []byte
	_, err := fmt.Sscanf(string(leaf), digestForm, &d.Bytes, &sum)
	if err != nil || d.Bytes <= MaxLeaf || copy(d.SHA256[:], sum) < len(d.SHA256) || !bytes.Equal(d.Leaf(), leaf) {
		return Digest{}, false
	}
	return d, true
}
