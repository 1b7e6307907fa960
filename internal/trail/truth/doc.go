// Package truth finds out which hashes of a log are the signed ones, and what became of the
// entries that are not.
//
// A log's Merkle tree (RFC 6962) is kept in several places: as the entries themselves, as lists of
// hashes next to the checkpoints, as tiles. Each of them may be damaged or altered. Only the signed
// roots are certain. So a [Tree] takes whatever the places say of a hash for possible, and lets the
// signed roots decide: those hashes count that lead to one. Damage is then known exactly, wherever
// it stands, as long as one place still has each hash. A hash that none has is not proven, and
// neither are those that only it could lead to.
//
// A [Finding] says what is wrong, in words that are the same for both forms of a trail.
//
// The room is pure. It serves both forms of a trail: its log in the store (internal/trail/audit),
// and its files (internal/trail/verify).
package truth
