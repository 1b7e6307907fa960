// Package datadir knows the files of a data directory: those of the embedded
// nats-server's streams, and the relay's own notes beside them.
//
// [Dir.Start] looks through the files of every stream before a server opens them,
// mends damage, and copies removed bytes to the [SalvageDir]. [Offline] reads the
// directory of a stopped relay. [Watermarks] are positions noted by the relay itself,
// to compare the files with. Whoever opens a directory describes its streams in a [Layout].
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
// So, before the server opens the files, the relay reads them, except for verified ones. It
// takes out only the damaged stretch, after a copy of it is in DATA_DIR/salvage, and puts a tombstone
// behind a torn end, as the server itself does where its index remembers a later one.
//
// # A form that is not known
//
// Unknown is not damaged. A start reads the files of all streams before it changes the
// first, and refuses with a [blockfile.ErrForm] where one is compressed, encrypted, of
// a later version, or beyond chance without a right checksum (unknown.go). Every file
// then stays as it is, for the version that wrote it. No push is taken, as the server would cut off
// such blocks. A person may decide that it is damage: journal repair --unknown-is-damage.
//
// Blocks with some right checksums are of the known form, so mending them is
// safe, whatever the amount of damage. Ingest opens; beyond chance, the journal's sinks wait for a person.
//
// # Names of new blocks
//
// The server syncs a block before it acknowledges a record, and never the folder that
// it has just made the block in. ext4, XFS and Btrfs write a new file's name with its first
// fsync. ext2, ext4 without its journal and some network file systems may lose the
// name, and all records with it, at a power cut. So the journal acknowledges the first record in a new block
// of events or dead letters after it has synced the folder (names.go). All others cost one lstat.
// Blocks of the trail, the quarantine and the credentials are not covered.
//
// # What a start reads
//
// With an index.db that fits the newest block, the server opens a stream without reading
// its blocks. After a kill the index is nearly always older; then the server reads all
// of them (blockfile/server_test.go). A start must not, so for the events' stream:
//
//   - Each sealed block is noted in DATA_DIR/marks/sealed, once it was read and found sound:
//     the identity of its file, and what the index says of it. A start reads the newest block,
//     those without a note, and those at which a consumer goes on.
//   - The start writes the index of all blocks, so that the server reads none. Where it cannot,
//     it reads and mends every block first, as the server will read them too.
//   - What was taken on trust is read in the background (32 MB/s), and before anybody has the
//     server read a record: one bit in a record's length would have it cut off the whole rest
//     of the block. A rotten block is mended under a new server, within a second.
//
// A note holds for one inode, size and times: a block that was written to or put back is
// read again. It is written without a sync, behind a sync of its block, so a power loss
// costs the reading of some blocks.
//
// # Watermarks
//
// Beside the server's files, in DATA_DIR/marks, the relay notes the newest acknowledged
// position, the end of the trimmed records and each sink's position, with checksums and
// without a sync: exact after a kill, older after a power loss, never newer. A
// server's position ahead of them is set back: duplicates, not loss. One behind them is set forward, if
// the watermark names this very stream, as the server writes positions only some times
// a second. So a kill -9 repeats the deliveries under way, and no others.
//
// # A failing disk
//
// After one failed write or fsync, as on a full disk, nats-server never writes to that
// stream again, and leaves publishers without an answer. So the relay watches it:
// waiting appends are refused at once, further pushes get 503, and sinks go on
// reading. As soon as a file of a mebibyte can be written and synced, with 16 MiB to
// spare, the server starts anew below the connection, which reconnects.
//
// Each start writes the newest file of each stream anew and syncs it: a killed process,
// or a failed fsync, may have left readable records there without their bytes on disk, and
// a push recognised by them must not be acknowledged. A start on a full disk waits, and answers pushes with 503.
//
// # Unknown is not damaged
//
// A start reads the files of all streams before it changes the first. It refuses, and
// leaves every file as it is, if one is compressed, encrypted, of a later version, or has
// records beyond chance (more than ten, or 1 in 100) without a single right checksum. A person may
// decide for damage: `auditrelay journal repair --unknown-is-damage`. A block with some right
// checksums is of the known form, so mending it is safe, whatever the amount.
//
// A consumer state with another magic byte is taken for damage: it has no checksum to
// tell the two apart. It goes to salvage whole, and the watermark has the position.
//
// # A start reads the new blocks only
//
// Each sealed block that was read and found sound is noted beside the watermarks
// (marks/sealed/STREAM), with the file's identity and everything the server must know of it. A start
// takes noted blocks of the events' stream on trust, and writes the server's index.db for them, so the
// server reads no old block after a kill either. It scrubs them in the background at 32 MB/s. Before the
// server reads a record for anyone, its block is verified; a rotten one is
// mended under a new server, within a second. Other streams are read whole at each start.
// Without notes (the first start of a version with them, or a restored copy of the directory)
// a start reads everything.
//
// # Memory
//
// With sync always, nats-server keeps a written block in memory for ten seconds after its
// last use, if a consumer reads it too, whatever the rate. The relay makes that one second
// (natsserver.ForgetAfter).
package datadir
