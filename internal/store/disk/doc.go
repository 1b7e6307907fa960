// Package disk is the store's backend for one machine: logs and a table in one folder.
//
// A log is a folder of segments. A segment holds records one after the other, each with
// its position and two checksums, of its header and of its body. The checksums are
// seeded with a secret of the log: bodies are the bytes of strangers, and nobody must be
// able to write something that looks like a record into one. After each sync, and before
// anything is acknowledged, the log's end is written into the end mark, a small file.
//
// What a start finds is judged by the end mark. Up to it, whatever cannot be read is
// damage, and a reader gets it as a gap. After it, whole records are taken, and what
// remains is a torn write that nobody was told about. That is certain while the machine
// has not been started again since the mark was written. Afterwards the mark is a lower
// bound, since it is synced once a second only: what is no record then is kept in the salvage
// folder, and named as so many records as may have stood there.
//
// So after a power cut the records of the last second vouch for themselves. Where the disk has also
// lost every trace of the newest of them, they are lost without a name: it gives zeros in their place,
// as before they were written, or the whole file as it was earlier. To know of them, each append would
// have to sync two files, and a disk that confirms what it does not keep would lose both.
//
// The table is told of each new segment and of each trim. So where the end mark is lost together
// with the oldest or the newest segment, that segment's records are lost, and named: neither are
// they taken for trimmed, nor are their positions given again. Where what the table knows is lost as
// well, whatever stood before the oldest segment, and may have stood after the newest, is doubtful; so is the
// latter where the mark and the table are lost, or earlier copies that know less than the segments do.
//
// On a filesystem that became read-only, appends are refused, and what the log holds is still read.
// A start there is refused.
//
// Nothing in a file except an unknown version, under a header checksum that is right,
// refuses a start.
package disk
