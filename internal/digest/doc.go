// Package digest proves the event stream: an event was received, at this time, and none
// between two was left out.
//
// # Spans
//
// A [Keeper] divides the journal into spans without gaps, and enters each into the audit
// trail, as an entry of the type events.span with a [Span] as its detail. A span begins
// behind the end of the one before, and names it by index and hash. It ends at an interval
// (10 minutes), or earlier at a number of events (1,000,000). There is no span with nothing
// except the relay's own events: each span is such an event, and would ask for the next.
//
// Root is a Merkle tree's (RFC 6962). Its leaves are the span's records in the order of
// their positions. A record holds the events of one commit (package record). Its leaf
// ([Leaf]) has the SHA-256 of the record as stored, and for a commit of at most 128 KiB the
// root over its events, whose leaves any sink's copy gives ([record.AppendLeaf]). Larger
// commits come under full load, where hashes of single events would cost some 7 % of the
// relay's CPU; a hash of the compressed record costs less than 3 %.
//
// # Where spans come from
//
// Each commit hashes its record while the server syncs it, and notes it ([Keeper.Note])
// without waiting. The keeper reads only the other records from the journal: after a
// start, behind a lost answer, or when it could not keep up. So a trail out of order
// stops nothing: the open span grows, at the cost of one tree's edge, and is entered
// later.
//
// The trail alone says where a span begins: [audit.Update] enters it behind the newest
// one, once, whatever line a crash hits. After a crash the next start reads the records
// behind the newest span again.
//
// # Damage, trimming, and a stream gone back
//
// A position without a readable record has no leaf. Missing names it, with the reason: lost
// or damaged (the quarantine says more), or trimmed before a span was made.
//
// After a stream went back, positions have other records than the spans say. A span's
// LastSHA256 shows it: then the next span begins behind the newest one whose last record is
// still in its place, and Again names the positions covered twice.
//
// # Proofs
//
// [Prove] finds an event, and makes a [Bundle]: the event, its way to the root of its span,
// and the span's entry. [Bundle.Verify] checks it offline; the proof of the entry is the
// trail's. An event of a large commit comes with its whole record, so the bundle shows the
// other events too. The journal must still have the span's records: it keeps them for the
// replay window after their delivery, if its disk budget allows.
//
// [List] writes the hashes of all events of a span. With it and without a journal,
// [Compare] later names the events missing from a full copy.
package digest
