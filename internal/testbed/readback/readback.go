// Package readback has destinations on loopback that can be read back: what the
// demo and the tests over real processes count at, instead of believing the
// relay's own counters.
package readback

import "context"

// Destination is where events arrive.
type Destination interface {
	Name() string
	// Count is how many records there are, asked of the destination cheaply.
	// It is for one goroutine at a time.
	Count(ctx context.Context) (int64, error)
	// Read gives each record's CloudEvents id and body, from the start. The
	// body is good during the call.
	Read(ctx context.Context, record func(id string, body []byte)) error
}
