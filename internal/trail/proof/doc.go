// Package proof has the formats to prove the trail to strangers: checkpoints, tiles,
// entry bundles, proofs and policies. It is pure: bytes in, bytes out.
//
// Each format is one of C2SP, and each doc comment names its page:
//
//   - https://c2sp.org/tlog-checkpoint: [Checkpoint]
//   - https://c2sp.org/tlog-tiles: [TilePath], [BundlePath], [Leaves]
//   - https://c2sp.org/tlog-proof: [Proof]
//   - https://c2sp.org/tlog-policy: [Policy]
//   - https://c2sp.org/tlog-cosignature: [NewCosignatureVerifier]
//
// The Merkle tree is the one of RFC 6962, as golang.org/x/mod/sumdb/tlog computes it. A
// leaf of the trail is a record, or the digest of a long one: see [LeafData].
//
// Every parser takes bytes from strangers: it refuses any other spelling than the format's
// own, and its memory is bounded by its input.
package proof
