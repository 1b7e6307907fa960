// Package proof has the formats to prove the trail to strangers: checkpoints, tiles,
// entry bundles, proofs and policies. It also finds out which hashes of a log are the signed ones,
// and what became of the entries that are not. It is pure: bytes in, bytes out.
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
// # What signed roots prove
//
// A log's Merkle tree is kept in several places: as the entries themselves, as lists of
// hashes next to the checkpoints, as tiles. Each of them may be damaged or altered. Only the signed
// roots are certain. So a [Tree] takes whatever the places say of a hash for possible, and lets the
// signed roots decide: those hashes count that lead to one. Damage is then known exactly, wherever
// it stands, as long as one place still has each hash. A hash that none has is not proven, and
// neither are those that only it could lead to. This serves both forms of a trail: its log in the
// store (internal/trail/audit), and its files (internal/trail/verify).
//
// A [Finding] says what is wrong, in words that are the same for both forms.
//
// # Parsers
//
// Every parser takes bytes from strangers: it refuses any other spelling than the format's
// own, and its memory is bounded by its input.
package proof
