// Package journal is the durable log of events, kept in NATS JetStream: in a
// server inside the process, or in an external cluster.
//
// [Journal.Append] returns once a push is on disk. A [Source] reads the log for
// one sink and keeps its position. The journal trims a record after every
// sink has acknowledged it and the replay window has passed, or earlier when the
// disk budget nears its end. Nothing else is ever thrown away, and a sink with an
// uncertain position counts as one without any acknowledgement.
//
// # Group commit
//
// One goroutine takes the appends that arrived during the commits in flight, up to
// 1 MiB, compresses them (S2), seals them (xxHash64) and publishes them as one
// JetStream message. The embedded server fsyncs before it acknowledges. Package record has
// the format.
//
// Before it takes a group, it yields to goroutines about to append, and waits for the
// senders of the last commit: they return together, and a commit without a wait splits them
// into two parts taking turns. The wait lasts as long as the last commit at most, and 5 ms
// at most; it becomes rare if senders do not return. A lone push never waits. While one
// record syncs, the next may be compressed and handed over, once enough bytes wait; small
// pushes gain more by sharing a later record.
//
// The first record in a new block is acknowledged only after the block's folder is
// synced too: some file systems lose the name of an unsynced file.
//
// An ingest batch already has the form of the record, so a body is copied once
// between the socket and the disk.
//
// # Reading
//
// A record of a mebibyte may decode to a thousand times as much: the labels of a
// stream stand once in it, and with every event at a sink. So readers take at most
// 4 MiB of events at a time (package record). The first piece checks the whole record: a
// damaged one gives nothing. Only the last piece's acknowledgement covers the record.
// The cache of decoded records has a bound too (16 MiB, counted the same way). Earlier versions took
// more labels than today's 1024 and 256 KiB; readers leave those out, and the label
// auditrelay_labels_left_out counts them.
//
// A source paces its batches: they are 5 ms apart unless full, so a stream of small
// pushes makes no stream of small requests. After a pause it gives an event at once.
//
// A sink's position is a durable JetStream consumer; an acknowledgement covers all
// records before it. A source reads in sessions. Each session begins with a
// comparison of the stream with the notes on it (see below), and resets the
// consumer to the last acknowledged position. Without the reset, the records an earlier process
// had read would come again late and out of order, and the acknowledgement of an
// earlier record would lose them. A session ends at a gap in the consumer's delivery count, at
// a reconnect, and when the stream went back. A batch under way stays valid: the
// server gives its last record again, and the acknowledgement goes to that delivery.
// JetStream flushes positions lazily. After a crash one may be older than the last
// acknowledgement, never newer.
//
// # Trimming, and the disk budget
//
// The journal asks for the position of every known sink: those of the configuration, and
// those in a durable register (stream PREFIX_SINKS, one subject per sink). A name enters
// the register before its position is made, and leaves it by `sinks retire`. Only the
// leader's answer about a position counts, as a list of consumers omits those without a
// leader. A missing answer, or a contradiction to the relay's own notes, trims nothing
// (package positions).
//
// Delivered records stay for the replay window (72 h) within the budget, judged by
// the process's own clock, which never jumps. As the budget nears its end, and
// before an append is refused, the oldest delivered records go, whatever their age.
// Undelivered records never go: when they fill the budget, pushes get 503.
//
// Undelivered events are accounted to the environment they came from, and
// [Journal.Reserve] refuses an environment that would hold more than eight times the
// free part of the budget (429). So the one with most is refused first (package diskbudget has the model).
//
// # An external cluster
//
// The same code serves journal.url. A publish is tried again with the same message id
// for 15 s and one last attempt, less than the stream's duplicate window of 30 s. So a lost
// answer, a new leader or a reconnect leaves one record. Then the push gets 503,
// whatever it waited behind. If the record was kept after all, the next push stores its events a
// second time, with the same ids: package recent knows only acknowledged events.
//
// On a shared cluster a later version may write: a source waits at its first record of a
// later version. A request for records may go
// away with the consumer's leader; asking every two idle seconds for the pending count
// notices it. A reconnect may change the largest payload, so each append asks for it:
// segments are cut anew to fit, and a single event beyond it gets 413. For dead
// letters, quarantine and trail only the leader answers. Any replica serves events, as
// their readers expect a lagging one.
// The watermarks of an external journal name losses; they set no sink's position forward.
package journal
