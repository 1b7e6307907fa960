package positions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// After ackWait the server offers an unacknowledged record again. A source skips records
	// read before, so this matters only for a record lost on the way.
	ackWait = 30 * time.Second
	// MaxAckPending bounds the records read but not acknowledged.
	MaxAckPending = 20_000
)

// Rewind opens a sink's position, at the journal's start for a new sink, corrects it, and
// makes the server give all unacknowledged records again, in order. Otherwise the records
// read by an earlier process would come only after ackWait and out of order, and an earlier
// acknowledgement would cover and so lose them. Rewind can be repeated.
//
// acked is the newest record acknowledged by this process, if it has started to read.
func (p *Positions) Rewind(ctx context.Context, sink string, acked uint64, started bool) (jetstream.Consumer, *jetstream.ConsumerResetResponse, error) {
	// First: after a crash here nothing is trimmed until the sink is opened or retired.
	if err := p.register.add(ctx, sink); err != nil {
		return nil, nil, err
	}
	name := consumerPrefix + sink
	consumer, err := p.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       name,
		Description:   "auditrelay: how far sink " + sink + " has come",
		AckPolicy:     jetstream.AckAllPolicy,
		AckWait:       ackWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: MaxAckPending,
		MaxDeliver:    -1,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open the position of sink %s: %w", sink, err)
	}
	if err := p.correct(ctx, name, consumer, acked, started); err != nil {
		return nil, nil, err
	}
	at, err := p.stream.ResetConsumer(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("rewind to the last acknowledged position of %s: %w", name, err)
	}
	return consumer, at, nil
}

// Correct corrects all positions while nothing reads, and returns their sinks.
func (p *Positions) Correct(ctx context.Context) ([]string, error) {
	list := p.stream.ListConsumers(ctx)
	sinks := []string{}
	for c := range list.Info() {
		if sink, ours := strings.CutPrefix(c.Name, consumerPrefix); ours {
			sinks = append(sinks, sink)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list the sinks' positions: %w", err)
	}
	for _, sink := range sinks {
		consumer, err := p.stream.Consumer(ctx, consumerPrefix+sink)
		if err != nil {
			return nil, fmt.Errorf("open the position of %s: %w", consumerPrefix+sink, err)
		}
		if err := p.correct(ctx, consumerPrefix+sink, consumer, 0, false); err != nil {
			return nil, err
		}
	}
	return sinks, nil
}

// correct sets a position to the newest record acknowledged by this process, if it has
// started to read, and otherwise to rightPosition.
func (p *Positions) correct(ctx context.Context, name string, consumer jetstream.Consumer, acked uint64, started bool) error {
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the position of %s: %w", name, err)
	}
	stream, err := p.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	at := info.AckFloor.Stream
	right, cause := p.rightPosition(name, at, stream.State)
	if started {
		right, cause = acked, "it was beyond the sink's newest acknowledgement"
	}
	if right == at {
		return nil
	}
	if _, err := p.stream.ResetConsumerToSequence(ctx, name, right+1); err != nil {
		return fmt.Errorf("set the position of %s from %d to %d: %w", name, at, right, err)
	}
	if right > at {
		p.log.Info("a sink's position was set forward to its newest acknowledgement, as the server had not written it yet",
			"consumer", name, "position", at, "set_to", right)
		return nil
	}
	p.log.Error("a sink's position was damaged and was set back; the sink may get duplicates",
		"consumer", name, "position", at, "set_to", right, "cause", cause)
	return nil
}

// rightPosition returns the corrected position for a sink now at `at`, and why it goes back.
//
// A position beyond the newest record goes back: the stream lost its end, and the next
// records would pass for acknowledged. A position beyond the sink's watermark goes back too,
// as the server keeps no checksum of it. To go back means duplicates; to stay would mean
// loss.
//
// A position goes forward to the watermark, as the server writes positions only a few times
// a second. Then the watermark must be of this very stream, and the stream must reach it.
func (p *Positions) rightPosition(name string, at uint64, stream jetstream.StreamState) (right uint64, cause string) {
	mark, marked := p.conn.Watermarks.Read(name)
	marked = marked && p.conn.Embedded() // on a cluster, another relay may have gone on
	switch {
	case marked && max(mark.Value, stream.FirstSeq-1) < at:
		return min(max(mark.Value, stream.FirstSeq-1), stream.LastSeq), "it was beyond the sink's newest acknowledgement"
	case at > stream.LastSeq:
		return stream.LastSeq, "it was beyond the newest record"
	case marked && mark.Stream == p.made && at < mark.Value && mark.Value <= stream.LastSeq:
		return mark.Value, ""
	}
	return at, ""
}
