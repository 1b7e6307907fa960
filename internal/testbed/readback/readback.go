// Package readback describes a destination to read back, and reads the file sink's files.
// Packages kafkatest and natstest do so for topics and streams. The demo, the benchmark
// and the tests over real processes count there, and do not rely on the relay's own
// counters.
package readback

import "context"

// Destination is where events arrive.
type Destination interface {
	Name() string
	// Count returns the number of records, at little cost. It is for one goroutine at a
	// time.
	Count(ctx context.Context) (int64, error)
	// Read passes each record's CloudEvents id and body to record, from the start. The
	// body is valid during the call.
	Read(ctx context.Context, record func(id string, body []byte)) error
}
