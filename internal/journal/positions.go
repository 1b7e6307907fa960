package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoPosition means the journal keeps no position of the sink.
var ErrNoPosition = errors.New("the journal keeps no position of this sink")

// errUncertain means nothing can be trimmed, as some sink's position is not known for
// certain.
var errUncertain = errors.New("not every sink's position is known for certain")

// SinkPosition is how far one sink has come in the journal, and the records kept for it:
// all those it has not acknowledged.
type SinkPosition struct {
	Sink         string    `json:"sink"`
	Acknowledged uint64    `json:"acknowledged"`      // its newest acknowledged record
	Pending      uint64    `json:"pending_records"`   // records behind; each holds one event or more
	Oldest       time.Time `json:"oldest,omitzero"`   // when the first of them was committed; zero without any
	HeldBytes    int64     `json:"held_bytes_approx"` // bytes of the pending records, by the average record
	Reading      bool      `json:"reading"`           // a relay reads for this sink right now
	// Kept is when the oldest kept record was committed, so how far back a replay to
	// any sink can reach; zero without any.
	Kept time.Time `json:"kept_since,omitzero"`
	// Absent means the journal knows the sink but has no position of it: it was never
	// opened, or somebody removed its position. Nothing is trimmed.
	Absent bool `json:"absent,omitempty"`
	// Unknown is why the position cannot be read right now; empty where it can. Nothing
	// is trimmed then, and the other fields mean nothing.
	Unknown string `json:"unknown,omitempty"`
}

// Positions returns the position of each known sink, configured or not, sorted by name. It
// lists an unreadable position as unknown.
func (j *Journal) Positions(ctx context.Context) ([]SinkPosition, error) {
	sinks, err := j.register.Read(ctx)
	if err != nil {
		return nil, err
	}
	info, err := j.info(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]SinkPosition, 0, len(sinks))
	for _, sink := range sinks {
		p := SinkPosition{Sink: sink, Kept: info.State.FirstTime}
		c, err := j.askPosition(ctx, sink)
		switch {
		case err == nil:
			p = positionOf(sink, c, info.State)
			err = j.setOldest(ctx, &p)
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			p.Absent, err = true, nil
		}
		if err != nil {
			p.Unknown = err.Error()
		}
		out = append(out, p)
	}
	return out, nil
}

func positionOf(sink string, c *jetstream.ConsumerInfo, state jetstream.StreamState) SinkPosition {
	p := SinkPosition{Sink: sink, Acknowledged: c.AckFloor.Stream, Reading: c.NumWaiting > 0, Kept: state.FirstTime}
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
	msg, err := j.get(ctx, p.Acknowledged+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // trimmed meanwhile
	}
	if err != nil {
		return err
	}
	p.Oldest = msg.Time
	return nil
}

// askPosition asks for one sink's position by name. On a cluster only the leader's answer
// counts: a new node for the position answers too, with an empty one.
func (j *Journal) askPosition(ctx context.Context, sink string) (*jetstream.ConsumerInfo, error) {
	c, err := j.stream.Consumer(ctx, consumerPrefix+sink)
	if err != nil {
		return nil, fmt.Errorf("ask for the position of sink %s: %w", sink, err)
	}
	info := c.CachedInfo()
	if j.cfg.Replicas > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
		return nil, fmt.Errorf("ask for the position of sink %s: no node leads it", sink)
	}
	return info, nil
}

// nobody is the lowest position without any sink.
const nobody uint64 = math.MaxUint64

// standing is the newest record acknowledged by every known sink, and the stream's state,
// read afterwards. The error wraps errUncertain if a position could not be read.
func (j *Journal) standing(ctx context.Context) (uint64, *jetstream.StreamInfo, error) {
	positions, err := j.askPositions(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errUncertain, err)
	}
	lowest := nobody
	for consumer, answered := range positions {
		lowest = min(lowest, j.atMost(consumer, answered))
	}
	info, err := j.info(ctx)
	if err != nil {
		return 0, nil, err
	}
	if err := j.contradiction(lowest, info); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errUncertain, err)
	}
	return lowest, info, nil
}

// contradiction says why the positions cannot belong to a stream in this state, or nil.
func (j *Journal) contradiction(lowest uint64, info *jetstream.StreamInfo) error {
	last := info.State.LastSeq
	newest, doubt := j.Losses.History.Reach()
	switch broken := j.commits.brokenBy(); {
	case broken != nil:
		return broken
	case doubt:
		return errors.New("the stream has to be compared with what is known of it")
	case info.Created.UnixNano() != j.made:
		return errors.New("the events' stream is another than the one that was opened")
	case last < newest:
		return fmt.Errorf("the stream ends at record %d, but record %d was acknowledged", last, newest)
	case lowest != nobody && lowest > last:
		return fmt.Errorf("the stream ends at record %d, but every sink has acknowledged record %d", last, lowest)
	}
	return nil
}

// askPositions asks for the position of each known sink, and fails if one is missing. Known
// are the config's sinks, and former ones not retired yet: they may come back.
func (j *Journal) askPositions(ctx context.Context) (map[string]uint64, error) {
	sinks, err := j.register.Read(ctx)
	if err != nil {
		return nil, err
	}
	positions := map[string]uint64{}
	for _, sink := range slices.Concat(sinks, j.sinks) {
		if _, asked := positions[consumerPrefix+sink]; asked {
			continue
		}
		info, err := j.askPosition(ctx, sink)
		if err != nil {
			return nil, err
		}
		positions[info.Name] = info.AckFloor.Stream
	}
	return positions, nil
}

// atMost bounds a position by the relay's own notes: the server keeps no checksum of
// positions, and a late answer may be older than a step back. Marks do not bound an
// external server's positions, as another relay may have read on since.
func (j *Journal) atMost(consumer string, answered uint64) uint64 {
	if mark, marked := j.conn.Watermarks.Read(consumer); marked && j.conn.Embedded() {
		answered = min(answered, mark.Value)
	}
	return min(answered, j.reached.at(consumer))
}

// reached holds how far the sinks of this process have come.
type reached struct {
	mu sync.Mutex
	by map[string]uint64 // consumer to its newest acknowledged record; guarded by mu
}

// set notes where a sink's reading starts.
func (r *reached) set(consumer string, record uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]uint64{}
	}
	r.by[consumer] = record
}

// raise notes an acknowledgement.
func (r *reached) raise(consumer string, record uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, reading := r.by[consumer]; reading {
		r.by[consumer] = max(at, record)
	}
}

// forget ends the notes for a sink: another relay may read on for it.
func (r *reached) forget(consumer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, consumer)
}

// at is how far the sink has come, or nobody if this process does not read for it.
func (r *reached) at(consumer string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record, reading := r.by[consumer]; reading {
		return record
	}
	return nobody
}

// RemovePosition forgets how far a sink has come, so nothing is kept for it. If it comes
// back, it starts at the oldest record. The error wraps ErrNoPosition if there is none. The
// caller makes sure nothing reads for the sink.
func (j *Journal) RemovePosition(ctx context.Context, sink string) error {
	known, err := j.register.Has(ctx, sink)
	if err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	// First: the sink would go on from a watermark without a position.
	if err := j.conn.Watermarks.Forget(consumerPrefix + sink); err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	err = j.stream.DeleteConsumer(ctx, consumerPrefix+sink)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if !known {
			return fmt.Errorf("remove the position of sink %s: %w", sink, ErrNoPosition)
		}
		err = nil // an earlier attempt got this far
	}
	if err == nil {
		err = j.register.Retire(ctx, sink)
	}
	if err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	return nil
}
