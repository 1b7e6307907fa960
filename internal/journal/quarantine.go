package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streams"
)

// setAside names a run of positions in the quarantine, and returns once it is durable
// there. The subject is the first position, and takes one message. So a second attempt, by
// another sink or after a crash, changes nothing.
func (j *Journal) setAside(ctx context.Context, q datadir.Quarantined, data []byte) error {
	if len(data) > j.recordLimit() {
		data = nil // it stands in the file that Kept names
	}
	m := q.Message(j.names.quarantineSubject, data)
	if q.Stream == j.names.events && j.lost != nil {
		defer j.lost() // also where another relay was first to name it
	}
	_, err := j.conn.JetStream.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(0))
	named := streams.IsWrongSequence(err) // already
	if err == nil || named {
		err = j.conn.Settle(j.names.quarantine)
	}
	if err != nil {
		return fmt.Errorf("set positions %d to %d of %s aside: %w", q.From, q.To, q.Stream, err)
	}
	if named {
		return nil
	}
	j.metrics.quarantined.Inc()
	j.metrics.lost.Add(float64(q.Positions()))
	j.log.Error("records of the journal cannot be read and were set aside", "stream", q.Stream,
		"first_position", q.From, "last_position", q.To, "reason", q.Reason, "kept", q.Kept, "quarantine", j.names.quarantine)
	return j.noteDamage(ctx, q)
}

// Quarantine returns what stands in the quarantine, oldest first.
func (j *Journal) Quarantine(ctx context.Context) ([]datadir.Quarantined, error) {
	all, _, err := j.readQuarantine(ctx)
	return all, err
}

func (j *Journal) readQuarantine(ctx context.Context) (all []datadir.Quarantined, accepted uint64, err error) {
	return readQuarantine(ctx, j.conn.JetStream, j.names.quarantine)
}

// readQuarantine also returns the position up to which damage is accepted.
func readQuarantine(ctx context.Context, js jetstream.JetStream, name string) (all []datadir.Quarantined, accepted uint64, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, 0, fmt.Errorf("open the quarantine: %w", err)
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the quarantine: %w", err)
		}
		if q, names := datadir.ReadQuarantined(msg.Header, len(msg.Data), msg.Time); names {
			all = append(all, q)
		}
		accepted = max(accepted, datadir.Accepted(msg.Header))
	}
	return all, accepted, nil
}

// FollowQuarantine calls handle for what stands in the quarantine and for what
// comes to it, in order and at least once, until ctx ends. Where handle fails
// it is called again, for as long as it takes. The position is kept over
// restarts, so what was set aside before a crash is told after it.
func (j *Journal) FollowQuarantine(ctx context.Context, handle func(context.Context, datadir.Quarantined) error) error {
	f := &streams.Follower{JetStream: j.conn.JetStream, Stream: j.names.quarantine, Durable: "audit", Logger: j.log}
	return f.Run(ctx, func(ctx context.Context, msg jetstream.Msg) error {
		var at time.Time
		if meta, err := msg.Metadata(); err == nil {
			at = meta.Timestamp
		}
		q, names := datadir.ReadQuarantined(msg.Headers(), len(msg.Data()), at)
		if !names {
			return nil
		}
		return handle(ctx, q)
	})
}
