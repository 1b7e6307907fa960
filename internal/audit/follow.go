package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
)

// Follow calls handle for each sound entry in order, at least once, and returns when
// ctx ends (its error). An unreadable entry is passed over, and has the trail read
// back, to be named. Where handle fails it is called again, with growing pauses, for as
// long as it takes; an outage of the servers is waited for, and so is an unusable
// trail. The position is kept under the name durable, over restarts; after a crash the
// newest entries may come again. Of several who follow under one name, one gets each
// entry.
func (t *Trail) Follow(ctx context.Context, durable string, handle func(ctx context.Context, e Recorded) error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("follow audit trail: %w", ctx.Err())
	case <-t.opened:
	}
	f := &streams.Follower{JetStream: t.js, Stream: t.entriesName(), Durable: durable, Logger: t.log}
	before := uint64(0)
	err := f.Run(ctx, func(ctx context.Context, msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		seq := meta.Sequence.Stream
		if before > 0 {
			err := t.copiesBetween(int64(before), int64(seq)-1, func(e Recorded) error { return handle(ctx, e) })
			if err != nil {
				return err
			}
		}
		if before > 0 && seq > before+1 && !contains(t.view.Load().passed, int64(before)) {
			t.suspect(fmt.Sprintf("the server passed over the entries %d to %d", before, seq-2))
		}
		before = max(before, seq)
		e, err := t.recorded(Message{seq, msg.Subject(), msg.Headers(), msg.Data()})
		switch {
		case errors.Is(err, ErrMissing):
			return nil
		case err != nil:
			if !contains(t.view.Load().passed, int64(seq)-1) {
				t.suspect(err.Error())
			}
			return nil
		}
		return handle(ctx, e)
	})
	return fmt.Errorf("follow audit trail: %w", err)
}
