package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
)

// Follow calls handle for each entry in order, at least once, and returns when
// ctx ends (its error) or an entry cannot be read (ErrDamaged). Where handle fails
// it is called again, with growing pauses, for as long as it takes; an outage of
// the servers is waited for. The position is kept under the name durable, over
// restarts; after a crash the newest entries may come again. Of several who
// follow under one name, one gets each entry.
func (t *Trail) Follow(ctx context.Context, durable string, handle func(ctx context.Context, index int64, e Entry) error) error {
	f := &streams.Follower{
		JetStream: t.js, Stream: t.entries.CachedInfo().Config.Name, Durable: durable, Logger: t.log,
		IsFinal: func(err error) bool { return errors.Is(err, ErrDamaged) },
	}
	err := f.Run(ctx, func(ctx context.Context, msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		e, err := t.decode(msg.Subject(), msg.Headers(), msg.Data(), meta.Sequence.Stream)
		if err != nil {
			return err
		}
		return handle(ctx, e.Index, e)
	})
	return fmt.Errorf("follow audit trail: %w", err)
}
