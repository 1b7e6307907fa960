package losses

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/record"
)

// NameUnreadable reads every record of events and dead letters. It copies each
// undecodable one to the salvage folder, and names it.
func (l *Ledger) NameUnreadable(ctx context.Context) error {
	for _, name := range []string{l.layout.Events, l.layout.DeadLetters} {
		stream, err := l.conn.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // no relay ran on this directory yet
		}
		if err != nil {
			return fmt.Errorf("open stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
			if name == l.layout.Events {
				if _, err := l.conn.Verified(ctx, seq, false); err != nil {
					return err
				}
			}
			msg, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // a report names the gaps
			}
			if err != nil {
				return fmt.Errorf("read position %d of %s: %w", seq, name, err)
			}
			if err := l.nameIfCorrupt(ctx, name, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Ledger) nameIfCorrupt(ctx context.Context, stream string, msg *jetstream.RawStreamMsg) error {
	_, corrupt := record.Check(msg.Data)
	if !errors.Is(corrupt, record.ErrCorrupt) {
		return corrupt // nil, or a sound record of a later version
	}
	kept, err := datadir.Keep(l.conn.DataDir, stream, msg.Sequence, msg.Data)
	if err != nil {
		return err
	}
	q := datadir.Quarantined{Stream: stream, From: msg.Sequence, To: msg.Sequence, Reason: corrupt.Error(), Kept: kept}
	return l.Name(ctx, q, msg.Data)
}
