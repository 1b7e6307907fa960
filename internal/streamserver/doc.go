// Package streamserver connects the relay to JetStream: to a server in the process, over
// the files of the data directory, or to an external cluster.
//
// # Promises
//
// [Connect] asks external servers for their guarantees (promises.go). It refuses streams
// in memory or with persist_mode async, as nothing acknowledged would be durable, and
// warns of lazy syncs, missing replicas and a small account.
//
// # Versions
//
// A record begins with the version of its format, and the metadata of the events' stream
// names its newest writer's version (versions.go). Records of a later version are
// sound: they refuse the start, before any file is touched.
//
// # An external cluster
//
// After two unanswered pings the client leaves a server for another. A publish without a
// connection fails at once, as its caller tries again. The cluster's disks are not the
// relay's: it mends nothing there, and keeps its watermarks in
// DATA_DIR/external/PREFIX/marks.
package streamserver
