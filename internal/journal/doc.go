// Package journal is the durable log of events, and how far each sink has come in it. Both
// are kept in a store: on one disk, or in an external cluster.
//
// [Set.Append] returns once a push is durable. A [Source] reads the log for
// one sink and keeps its position. The journal trims a record after every
// sink has acknowledged it and the replay window has passed, or earlier when the
// disk budget nears its end. Nothing else is ever thrown away, and nothing is trimmed while
// some sink's position cannot be believed.
//
// # Group commit
//
// An append that finds nobody at work leads: it packs the appends that wait, up to 1 MiB,
// compresses them (S2), seals them (xxHash64) and appends them to the log as one record.
// Then it wakes the others. Package record has the format. The store syncs, or has a quorum,
// before it says that the record is there.
//
// Before it takes a group, the leader yields to goroutines about to append, and waits for
// the senders of the last commit: they return together, and a commit without a wait splits
// them into two parts that take turns. The wait lasts as long as the last commit at most, and
// 5 ms at most; it becomes rare if senders do not return. A lone push never waits. While one
// record syncs, the next may be compressed, once enough bytes wait; small pushes gain more
// by sharing a later record.
//
// An ingest batch already has the form of the record, so a body is copied once
// between the socket and the record.
//
// A record's key is the number of events that the log ever had. So the number of events
// between a position and the end is known without reading anything in between.
//
// # Reading
//
// A record of a mebibyte may decode to a thousand times as much: the labels of a
// stream stand once in it, and with every event at a sink. So readers take at most
// 4 MiB of events at a time (package record). The first piece checks the whole record: a
// damaged one gives nothing. Only the last piece's acknowledgement covers the record.
// The cache of decoded records has a bound too (16 MiB, counted the same way).
//
// A source paces its batches: they are 5 ms apart unless full, so a stream of small
// pushes makes no stream of small requests. After a pause it gives an event at once.
//
// Lost positions and records that cannot be decoded are named by the [Quarantine] before a
// source passes over them. A source waits at its first record of a later version.
//
// # Positions
//
// A sink's position is a value in the store's table. It names the sink, the log, and the
// checksum of the record at the position, and is written once the sink, or the dead
// letters, have the events. A value that does not fit is not believed: it may be another
// sink's, or of another log, or the log may have been put back to an earlier state. Such a
// sink gets everything that is kept, because a repeated event does less harm than a lost one.
// The log and a metric say so. A position after the end of the log, on a disk, is believed more than
// the end: a start names the records up to there as lost, and goes on after them.
//
// Positions are written lazily: after a power cut one may be older than the last
// acknowledgement, never newer. Before a trim they are synced.
//
// A second, durable value registers the sink. It is there before the sink reads anything, and
// until `sinks retire`. Trimming waits for each sink that has one of the two values, and for each
// configured one.
//
// # The disk budget
//
// Delivered records stay for the replay window (72 h), and until their digest is in the trail, within
// the budget. As the budget
// nears its end, and before an append is refused, the oldest delivered records go, whatever
// their age. Undelivered records never go: when they fill the budget, pushes get 503.
//
// Undelivered events are accounted to the environment they came from, and
// [Journal.Reserve] refuses an environment that would hold more than eight times the
// free part of the budget (429). So the one with most is refused first (budget.go has the model).
//
// # Shards
//
// A journal on a cluster may spread its events over several logs, so that more than one server leads.
// To those above it, they are one journal: a [Set]. All events of an environment are in one log, which
// its source decides; so their order is that of the log. Each log is a [Journal], with a budget,
// commits and positions of its own.
//
// Which number of logs counts says the layout, a value in the store's table. It is changed by the relay
// that has control, as soon as all relays are configured with another number. First it says that some
// environments are about to move: pushes of them are refused from then on, with a word to try again.
// Once all relays have said that nothing of these environments is on its way any more, it notes the
// end of each log, and the new number counts. A record names the layout it was appended under, and a
// sink gets it only after everything up to those ends. So the old logs are drained first, at
// each sink, and an environment's events keep their order.
//
// A relay that was cut off, and does not know the layout of the last [StaleAfter], refuses pushes; and
// the one that has control waits as long after a relay was lost. No event depends on that, since all
// logs are read for as long as they have events: only the order of a moved environment's.
package journal
