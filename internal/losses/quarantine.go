package losses

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func (l *Ledger) makeQuarantine(ctx context.Context, replicas int) error {
	err := streams.Await(ctx, l.log, "stream "+l.layout.Quarantine, func(ctx context.Context) error {
		_, err := l.conn.JetStream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: l.layout.Quarantine, Subjects: []string{l.subject, l.subject + ".>"},
			Description: "auditrelay: records that could not be read, and positions whose records are lost",
			Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: replicas,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open stream %s: %w", l.layout.Quarantine, err)
	}
	return nil
}

// Name puts a run of positions into the quarantine, with the bytes of its record if any.
// It returns once it is durable. The subject is the first position, and takes
// one message: another sink, or the same one after a crash, adds nothing.
func (l *Ledger) Name(ctx context.Context, q datadir.Quarantined, data []byte) error {
	if len(data) > l.conn.PayloadLimit() {
		data = nil // Kept names its file
	}
	m := q.Message(l.subject, data)
	if q.Stream == l.layout.Events && l.lost != nil {
		defer l.lost() // also if another relay named it first
	}
	err := l.conn.Put(ctx, l.layout.Quarantine, m, jetstream.WithExpectLastSequencePerSubject(0))
	named := streams.IsWrongSequence(err) // already
	if named {
		err = l.conn.Settle(l.layout.Quarantine)
	}
	if err != nil {
		return fmt.Errorf("set positions %d to %d of %s aside: %w", q.From, q.To, q.Stream, err)
	}
	if named {
		return nil
	}
	l.metrics.quarantined.Inc()
	l.metrics.lost.Add(float64(q.Positions()))
	l.log.Error("records of the journal cannot be read and were set aside", "stream", q.Stream,
		"first_position", q.From, "last_position", q.To, "reason", q.Reason, "kept", q.Kept, "quarantine", l.layout.Quarantine)
	return l.noteDamage(ctx, q)
}

// All returns the content of the quarantine, oldest first.
func (l *Ledger) All(ctx context.Context) ([]datadir.Quarantined, error) {
	all, _, err := read(ctx, l.conn.JetStream, l.layout.Quarantine)
	return all, err
}

// Quarantined is All without a ledger: nothing without a quarantine.
func Quarantined(ctx context.Context, conn *streamserver.Conn, prefix string) ([]datadir.Quarantined, error) {
	all, _, err := read(ctx, conn.JetStream, streamserver.Layout(prefix).Quarantine)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	return all, err
}

// read returns the named losses, and the position up to which damage is accepted.
func read(ctx context.Context, js jetstream.JetStream, name string) (all []datadir.Quarantined, accepted uint64, err error) {
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

// Follow calls handle for each named loss, old and new, in order and at least once, until
// ctx ends. It repeats a failed call for as long as it takes. Its position outlives
// restarts, so handle hears of a loss from before a crash too.
func (l *Ledger) Follow(ctx context.Context, handle func(context.Context, datadir.Quarantined) error) error {
	f := &streams.Follower{JetStream: l.conn.JetStream, Stream: l.layout.Quarantine, Durable: "audit", Logger: l.log}
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
