package positions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Position is how far one sink has come in the journal, and the records kept for it: all
// those it has not acknowledged.
type Position struct {
	Sink         string    `json:"sink"`
	Acknowledged uint64    `json:"acknowledged"`      // its newest acknowledged record
	Pending      uint64    `json:"pending_records"`   // records behind; each holds one event or more
	Oldest       time.Time `json:"oldest,omitzero"`   // when the first of them was committed; zero without any
	HeldBytes    int64     `json:"held_bytes_approx"` // bytes of the pending records, by the average record
	Reading      bool      `json:"reading"`           // a relay reads for this sink right now
	// Kept is when the oldest kept record was committed, so how far back a replay to any sink
	// can reach; zero without any.
	Kept time.Time `json:"kept_since,omitzero"`
	// Absent means the register knows the sink, but there is no position of it: it was never
	// opened, or somebody removed its position. Nothing is trimmed.
	Absent bool `json:"absent,omitempty"`
	// Unknown is why the position cannot be read right now; empty where it can. Nothing is
	// trimmed then, and the other fields mean nothing.
	Unknown string `json:"unknown,omitempty"`
}

// List returns the position of each known sink, configured or not, sorted by name. It lists
// an unreadable position as unknown.
func (p *Positions) List(ctx context.Context) ([]Position, error) {
	sinks, err := p.register.read(ctx)
	if err != nil {
		return nil, err
	}
	info, err := p.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	out := make([]Position, 0, len(sinks))
	for _, sink := range sinks {
		at := Position{Sink: sink, Kept: info.State.FirstTime}
		c, err := p.ask(ctx, sink)
		switch {
		case err == nil:
			at = positionOf(sink, c, info.State)
			err = p.setOldest(ctx, &at)
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			at.Absent, err = true, nil
		}
		if err != nil {
			at.Unknown = err.Error()
		}
		out = append(out, at)
	}
	return out, nil
}

func positionOf(sink string, c *jetstream.ConsumerInfo, state jetstream.StreamState) Position {
	at := Position{Sink: sink, Acknowledged: c.AckFloor.Stream, Reading: c.NumWaiting > 0, Kept: state.FirstTime}
	from := max(c.AckFloor.Stream+1, state.FirstSeq)
	if state.Msgs > 0 && from <= state.LastSeq {
		at.Pending = state.LastSeq - from + 1
		at.HeldBytes = int64(float64(state.Bytes) / float64(state.Msgs) * float64(at.Pending))
	}
	return at
}

// setOldest finds when the first pending record was committed.
func (p *Positions) setOldest(ctx context.Context, at *Position) error {
	if at.Pending == 0 {
		return nil
	}
	seq := at.Acknowledged + 1
	if _, err := p.conn.Verified(ctx, seq, false); err != nil {
		return err
	}
	msg, err := p.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // trimmed meanwhile
	}
	if err != nil {
		return fmt.Errorf("read record %d: %w", seq, err)
	}
	at.Oldest = msg.Time
	return nil
}
