package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoPosition says that the journal keeps no position of that sink.
var ErrNoPosition = errors.New("the journal keeps no position of this sink")

// SinkPosition is how far one sink has come in the journal, and what it holds
// up there: whatever a sink has not acknowledged is kept.
type SinkPosition struct {
	Sink         string    `json:"sink"`
	Acknowledged uint64    `json:"acknowledged"`      // the newest record that it has acknowledged
	Pending      uint64    `json:"pending_records"`   // records behind that; each holds one event or many
	Oldest       time.Time `json:"oldest,omitzero"`   // when the first of them was committed; zero without any
	HeldBytes    int64     `json:"held_bytes_approx"` // what the pending ones take, by the average record
	Reading      bool      `json:"reading"`           // a relay reads for this sink right now
}

// Positions returns the position of each sink that has one, configured or not,
// in the order of their names.
func (j *Journal) Positions(ctx context.Context) ([]SinkPosition, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	var out []SinkPosition
	list := j.stream.ListConsumers(ctx)
	for c := range list.Info() {
		sink, ours := strings.CutPrefix(c.Name, consumerPrefix)
		if !ours {
			continue
		}
		out = append(out, positionOf(sink, c, info.State))
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list the sinks' positions: %w", err)
	}
	for i := range out {
		if err := j.setOldest(ctx, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func positionOf(sink string, c *jetstream.ConsumerInfo, state jetstream.StreamState) SinkPosition {
	p := SinkPosition{Sink: sink, Acknowledged: c.AckFloor.Stream, Reading: c.NumWaiting > 0}
	from := max(c.AckFloor.Stream+1, state.FirstSeq)
	if state.Msgs > 0 && from <= state.LastSeq {
		p.Pending = state.LastSeq - from + 1
		p.HeldBytes = int64(float64(state.Bytes) / float64(state.Msgs) * float64(p.Pending))
	}
	return p
}

// setOldest finds when the first pending record was committed.
func (j *Journal) setOldest(ctx context.Context, p *SinkPosition) error {
	if p.Pending == 0 {
		return nil
	}
	msg, err := j.stream.GetMsg(ctx, p.Acknowledged+1, jetstream.WithGetMsgSubject(j.names.eventsSubject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // trimmed meanwhile
	}
	if err != nil {
		return fmt.Errorf("read the time of record %d: %w", p.Acknowledged+1, err)
	}
	p.Oldest = msg.Time
	return nil
}

// RemovePosition forgets how far a sink has come, so that nothing is kept for
// it any more. If the sink comes back it starts at the oldest record. The error
// wraps ErrNoPosition where there is none. The caller makes sure that nothing
// reads for the sink.
func (j *Journal) RemovePosition(ctx context.Context, sink string) error {
	// First: a mark without its position would have the sink go on from there.
	if err := j.conn.marks.forget(consumerPrefix + sink); err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	err := j.stream.DeleteConsumer(ctx, consumerPrefix+sink)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("remove the position of sink %s: %w", sink, ErrNoPosition)
	}
	if err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	return nil
}
