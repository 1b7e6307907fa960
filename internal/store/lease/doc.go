// Package lease spreads the jobs of a cluster over its relays, so that each job has one holder.
//
// A job has an epoch: a value in the store's table that names its holder, and that is
// replaced only under the condition that nobody has replaced it meanwhile. Whatever the holder
// makes durable for its job is conditional on the epoch's revision, so that a relay that was
// thought dead, and comes back, is refused by the store: no clock decides that. Clocks decide
// only when to try: a relay whose heartbeat another one has not seen change for some time, by
// its own monotonic clock, counts as gone.
//
// [Machine] makes the decisions, and is pure.
package lease
