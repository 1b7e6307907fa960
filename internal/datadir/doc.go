// Package datadir knows the files of a data directory: those of the embedded
// nats-server's streams, and the relay's own notes beside them.
//
// [Dir.Start] looks through the files of every stream before a server opens them, mends
// damage, and copies removed bytes to the [SalvageDir]. [Offline] reads the directory of
// a stopped relay. [Watermarks] are positions noted by the relay itself, to compare the
// files with. Whoever opens a directory describes its streams in a [Layout].
//
// # What the server does with damage
//
// nats-server 2.15 answers damage with more loss, and without a word.
// internal/journal/damage_test.go shows it with the mending switched off:
//
//   - When it rebuilds a block (after each crash) it cuts the file off at the first
//     bad checksum, good records behind it and all.
//   - After a torn end it gives the lost positions to new records. A sink beyond those
//     positions never gets them.
//   - It passes in silence over a record with a bad checksum.
//   - It keeps no checksum of a consumer's position, and drops the consumer when it
//     cannot decode the state.
//   - A damaged meta.inf hides a stream and its consumers.
//
// So, before the server opens the files, the relay reads them, except for verified ones.
// It removes only the damaged stretch, after copying it to DATA_DIR/salvage. Behind a
// torn end it puts a tombstone. The server itself does so when its index remembers a
// later end.
//
// # Unknown is not damaged
//
// A start reads the files of all streams before it changes the first. It refuses with a
// [blockfile.ErrForm], and leaves every file as it is, if one is compressed, encrypted,
// of a later version, or has records beyond chance (more than ten, or 1 in 100) without a
// single right checksum (unknown.go). No push is taken then, as the server would cut off
// such blocks. A person may decide for damage: auditrelay journal repair
// --unknown-is-damage.
//
// Blocks with some right checksums are of the known form, so mending them is safe,
// whatever the amount of damage. Ingest opens; beyond chance, the journal's sinks wait
// for a person.
//
// A file the disk cannot give (a bad sector, a folder in its place) is damaged: its readable
// records stay, and the file itself goes to salvage. An error that says nothing about the
// bytes, such as a missing permission or too many open files, refuses the start.
//
// A consumer state with another magic byte is taken for damage: it has no checksum to
// tell the two apart. It goes to salvage whole, and the watermark has the position.
//
// # Names of new blocks
//
// The server syncs a block before it acknowledges a record, and never the folder of a new
// block. ext4, XFS and Btrfs write a new file's name with its first fsync. ext2, ext4
// without its journal and some network file systems may lose the name, and all records
// with it, at a power cut. So each room acknowledges its first record in a new block after
// a sync of the folder (names.go): the journal for events, dead letters, the quarantine and
// the list of sinks, the trail for entries and checkpoints, the credentials for their
// bucket. All other records cost one lstat. Not covered is the key of event ids: its loss
// loses no event.
//
// # What a start reads
//
// With an index.db fitting the newest block, the server opens a stream without reading
// its blocks. After a kill the index is nearly always older, and the server reads all of
// them (blockfile/server_test.go). A start must not, so for the events' stream:
//
//   - After reading a sealed block and finding it sound, the relay notes it in
//     DATA_DIR/marks/sealed: the identity of its file, and its entry in the index. A start
//     reads the newest block, those without a note, and those at a consumer's position.
//   - The start writes the index of all blocks, so the server reads none. If it cannot,
//     it reads and mends every block first, as the server will read them too.
//   - Each block taken on trust is read in the background (32 MB/s), or before the server
//     reads a record of it: because of one bit in a record's length, the server would cut off
//     the whole rest of the block. A rotten block is mended under a new server, within a
//     second.
//
// A note holds for one inode, size and times: a block changed or put back since is read
// again. The note is written without a sync, behind a sync of its block, so a power loss
// costs the reading of some blocks. The other streams are read whole at each start.
// Without notes (the first start of a version with them, or a restored copy of the
// directory) a start reads everything.
//
// # Watermarks
//
// Beside the server's files, in DATA_DIR/marks, the relay notes the newest acknowledged
// position, the end of the trimmed records and each sink's position, with checksums and
// without a sync: exact after a kill, older after a power loss, never newer. A server's
// position ahead of its watermark is set back: duplicates, not loss. One behind is set
// forward, if the watermark names this very stream, as the server writes positions only
// some times a second. So a kill -9 repeats the deliveries under way, and no others.
//
// # A failing disk
//
// After one failed write or fsync, as on a full disk, nats-server never writes to that
// stream again, and leaves publishers without an answer. So the relay watches it: waiting
// appends are refused at once, further pushes get 503, and sinks go on reading. As soon
// as a file of a mebibyte can be written and synced, with 16 MiB to spare, the server
// starts anew below the connection, and the client reconnects.
//
// Each start writes the newest file of each stream anew and syncs it: a killed process,
// or a failed fsync, may have left readable records there without their bytes on disk,
// and a push recognised by them must not be acknowledged. A start on a full disk waits,
// and answers pushes with 503.
//
// # Memory
//
// With sync always, nats-server keeps a written block of 8 MiB in memory for ten seconds
// after its last use, if a consumer reads it too, whatever the rate. The relay makes that
// 1 MiB (4 MiB if messages are large) and about a tenth of a second (natsserver.BoundMemory).
package datadir
