// Package cluster keeps a store on an external NATS cluster, with JetStream.
//
// # Streams
//
// Each log is a stream, PREFIX_NAME, and the table is one more, PREFIX_TABLE, with a
// subject for each key. A message is a frame (frame.go): what it holds is checksummed, and
// a random number in it tells two messages at the same place apart.
//
// # Positions
//
// A record's position is its sequence in the stream plus a shift, which is 0 for as long
// as the cluster loses nothing. A cluster may lose the end of a stream, and then gives the
// same sequences to other messages. From there on the shift is larger by what was lost, so
// that no position is ever given out twice, and nobody who keeps a position has to be set
// back: the lost ones are a gap that readers are given, Rewound. A stream that was deleted
// is the same case: it lost everything. The shifts stand in the table (meta.go).
//
// A loss is noticed because the relay knows the newest records that it appended or read
// (known.go). It compares them with the stream when it opens a log, after a reconnect, once
// a minute, and wherever a position is given to another record than before (compare.go).
// They outlive the process in a note in the data directory and, the newest one only, for a relay
// that comes back without its data directory, in the table.
//
// # Appending
//
// The attempts of one append carry the same message id, so that the cluster stores it once
// although an answer was lost. Several drafts are an atomic batch. Appends do not wait for
// one another.
//
// # Reading
//
// A reader asks any replica for batches of messages. Whatever is not where it should be, it
// asks of the stream's leader, so that a lagging replica makes no gap. There are no
// consumers: they would be state of the cluster's that can be lost or stay silent.
package cluster
