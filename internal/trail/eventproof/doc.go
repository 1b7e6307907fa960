// Package eventproof proves the event stream: an event was received, at this time, and none
// between two was left out.
//
// # Spans
//
// A [Keeper] divides the journal into spans without gaps, and enters each into the audit
// trail, as an entry of the type events.span with a [Span] as its detail. A span begins
// after the end of the one before, and names it by index and hash. It ends at an interval
// (10 minutes), or earlier at a number of events (1,000,000). There is no span with nothing
// except the relay's own events: each span is such an event, and would ask for the next.
//
// Root is a Merkle tree's (RFC 6962). Its leaves are the span's records in the order of
// their positions. A record holds the events of one commit (package record), and its leaf
// ([Leaf]) has the root over these events. The events' leaves are salted ([record.Salt]), so
// that a span's entry and a proof confirm no guess at an event that a sink's copy
// shows redacted. The hash of each event costs some 2 µs, while the server syncs the record.
//
// # Where spans come from
//
// Each commit hashes its record while the server syncs it, and notes it ([Keeper.Note])
// without waiting. The keeper reads only the other records from the journal: after a
// start, after a lost answer, or when it could not keep up. So a trail out of order
// stops nothing: the open span grows, at the cost of one tree's edge, and is entered
// later.
//
// The trail alone says where a span begins: [audit.Update] enters it after the newest
// one, once, whatever line a crash hits. After a crash the next start reads the records
// after the newest span again.
//
// # Damage, trimming, and another log
//
// A position without a readable record has no leaf. Missing names it, with the reason: lost
// or damaged (the quarantine says more), or trimmed before a span was made.
//
// Where the log of events is another one than before, its positions have other records than
// the spans say. A span's LastLeaf shows it: then the next span begins after the newest one
// whose last record is still in its place, and Again names the positions covered twice.
//
// # Proofs
//
// [Prove] finds an event, and makes a [Bundle]: the event, its way to the root of its span,
// and the span's entry. [Bundle.Verify] checks it offline; the proof of the entry is the
// trail's. The bundle has the salt of this event alone, and tells nothing about the others. The
// journal must still have the span's records: it keeps them for the replay window after their
// delivery, if its disk budget allows.
//
// [List] writes the hashes of all events of a span. With it and without a journal,
// [Compare] later names the events missing from a full copy.
package eventproof
