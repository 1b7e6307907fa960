package streamserver

import (
	"context"
	"errors"
	"math"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// Conn is the relay's connection to JetStream: to a server of its own in the process, or
// to an external cluster. It is safe for concurrent use.
type Conn struct {
	JetStream jetstream.JetStream
	// Watermarks are the relay's own notes on the streams.
	Watermarks *datadir.Watermarks
	// DataDir holds the embedded server's files. It is empty for an external server.
	DataDir string
	// Mended are the repairs of this start in the embedded server's files.
	Mended []datadir.Mending

	embedded *datadir.Server // nil for an external server
	lock     *os.File        // on the data directory; nil for an external server
}

// Embedded reports whether the server runs in this process. Its files can be mended,
// and no other relay writes to its streams.
func (c *Conn) Embedded() bool { return c.embedded != nil }

// MaxPayload is the server's present limit for a message, in bytes with its headers.
// After a reconnect an external server may take less.
func (c *Conn) MaxPayload() int { return int(c.JetStream.Conn().MaxPayload()) }

// HeaderRoom is left for a message's headers, in bytes. The largest is a dead letter's
// reason.
const HeaderRoom = 16 << 10

// PayloadLimit is the largest payload of a message, in bytes: MaxPayload without
// HeaderRoom, or without a quarter of a small one.
func (c *Conn) PayloadLimit() int {
	payload := c.MaxPayload()
	return payload - min(HeaderRoom, payload/4)
}

// Err says why nothing can be kept at present: the server is out of reach, or the
// embedded one's disk fails.
func (c *Conn) Err() error {
	if err := c.Epoch().Ended(); err != nil {
		return err
	}
	if !c.JetStream.Conn().IsConnected() {
		return errors.New("not connected")
	}
	return nil
}

// Epoch is the server's current epoch. An external server's never ends.
func (c *Conn) Epoch() *datadir.Epoch {
	if c.embedded == nil {
		return &datadir.Epoch{}
	}
	_, epoch := c.embedded.Current()
	return epoch
}

// Settle completes an embedded server's durable write: see [datadir.Server.Settle].
func (c *Conn) Settle(stream string) error {
	if c.embedded == nil {
		return nil
	}
	return c.embedded.Settle(stream)
}

// Remade notes a deleted stream as made again: see [datadir.Server.Remade].
func (c *Conn) Remade(stream string) {
	if c.embedded != nil {
		c.embedded.Remade(stream)
	}
}

// Shrunk notes the removal of messages: see [datadir.Server.Shrunk].
func (c *Conn) Shrunk(stream string) {
	if c.embedded != nil {
		c.embedded.Shrunk(stream)
	}
}

// Verified verifies the embedded server's blocks before a read of the record at seq: see
// [datadir.Server.Verified].
func (c *Conn) Verified(ctx context.Context, seq uint64, ahead bool) (through uint64, err error) {
	if c.embedded == nil {
		return math.MaxUint64, nil
	}
	return c.embedded.Verified(ctx, seq, ahead)
}

// Mendings counts the mended pieces of files, in all epochs of the server so far.
func (c *Conn) Mendings() uint64 {
	if c.embedded == nil {
		return 0
	}
	return c.embedded.Mended()
}

// Unscrubbed is how many bytes the start took on trust: see [datadir.Server.Unscrubbed].
func (c *Conn) Unscrubbed() int64 {
	if c.embedded == nil {
		return 0
	}
	return c.embedded.Unscrubbed()
}

// KeepDescriptions copies the streams' descriptions: see [datadir.Server.KeepDescriptions].
func (c *Conn) KeepDescriptions() {
	if c.embedded != nil {
		c.embedded.KeepDescriptions()
	}
}

// NoteEnd notes seq as the end of a stream, beside the embedded server's files. The next
// start names records missing before it, and does not give their positions out again.
func (c *Conn) NoteEnd(stream string, seq uint64) {
	if c.embedded != nil { // nothing keeps an external server from giving positions out again
		c.Watermarks.RaiseEnd(stream, seq)
	}
}

// End is the position from NoteEnd, 0 for none.
func (c *Conn) End(stream string) uint64 { return c.Watermarks.End(stream) }

// Close disconnects, and stops an embedded server.
func (c *Conn) Close() error {
	if c.JetStream != nil {
		c.JetStream.Conn().Close()
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
	err := c.Watermarks.Close()
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}
