// Package verify proves trails: the bytes are the signed ones (integrity), and nothing is
// missing (completeness). It needs the relay's files for public tools, from a folder or an address, or a sink's copy of the events; and a key or a policy
// from outside. It knows no running relay.
//
// # Integrity
//
// Every entry is hashed, and held against the tiles and the checkpoints of the history; both
// lead to signed roots. Where the files disagree, a hash counts as
// right if it gives the signed root, so damage is named exactly, in whatever file it
// stands, as long as one of the files still has each hash. Where none has, the entries are
// unproven.
//
// Integrity alone cannot show whether the newest checkpoint is the newest one ever
// signed. An older copy of all files is sound. A checkpoint from elsewhere shows it (see
// Options.Known), and so does a policy with witnesses, whose signatures say when they saw
// the tree.
//
// # Completeness
//
// The entries themselves tell of the watching: attestations of looks at settings, spans of
// the event stream, entries lost before they were signed, damage named by the trail. The
// log's own timestamped signatures are its heartbeats.
//
// # Cost
//
// One pass over the files, in parallel; memory is a few bundles, and 64 bytes for 256
// entries. A checkpoint of the history takes 100 bytes of memory and two signature checks.
package verify
