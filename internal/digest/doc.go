// Package digest proves the event stream: that an event was received, when, and that none
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
// their positions: see [Leaf]. A record holds the events of one commit as the journal
// stores them (package record); its SHA-256 covers body, attributes and time of receipt of
// each. So one hash of some 190 stored bytes covers an event of 617 bytes, which costs the
// relay less than 3 % of its CPU at full load; a hash of each whole event would cost more.
//
// # Where spans come from
//
// Each commit hashes its record while the server syncs it, and tells the keeper
// ([Keeper.Note]), which never blocks it. The keeper reads from the journal only what
// nobody told of: after a start, behind an answer that was lost, or when it could not
// keep up. So a trail out of order stops nothing: the open span grows, at the cost of one
// tree's edge, and is entered later.
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
// [Prove] finds an event, and makes a [Bundle]: the record with the event, the record's
// path to the span's root, and the span's entry. [Bundle.Verify] checks it offline. The
// proof of the entry itself is the trail's. The record holds the events of one commit: a
// bundle shows them all. The journal must still have the span's records: for the replay
// window after their delivery, if its disk budget allows.
package digest
