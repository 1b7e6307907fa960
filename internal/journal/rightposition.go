package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// position is a sink's durable consumer.
type position struct {
	name     string
	consumer jetstream.Consumer
}

// correct sets a sink's position to the newest record acknowledged by this process, if
// started, and otherwise to rightPosition.
func (j *Journal) correct(ctx context.Context, p position, acked uint64, started bool) error {
	info, err := p.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the position of %s: %w", p.name, err)
	}
	stream, err := j.info(ctx)
	if err != nil {
		return err
	}
	at := info.AckFloor.Stream
	right, cause := j.rightPosition(p.name, at, stream.State)
	if started {
		right, cause = acked, "it was beyond the sink's newest acknowledgement"
	}
	if right == at {
		return nil
	}
	if _, err := j.stream.ResetConsumerToSequence(ctx, p.name, right+1); err != nil {
		return fmt.Errorf("set the position of %s from %d to %d: %w", p.name, at, right, err)
	}
	if right > at {
		j.log.Info("a sink's position was set forward to its newest acknowledgement, as the server had not written that yet",
			"consumer", p.name, "position", at, "set_to", right)
		return nil
	}
	j.log.Error("a sink's position was damaged and was set back; the sink may get duplicates",
		"consumer", p.name, "position", at, "set_to", right, "cause", cause)
	return nil
}

// rightPosition returns the corrected position for a sink now at `at`, and why it
// goes back.
//
// A position beyond the newest record goes back: the stream lost its end, and the next
// records would pass for acknowledged. A position beyond the sink's watermark goes back
// too, as the server keeps no checksum of it. To go back means duplicates; to stay would
// mean loss.
//
// A position goes forward to the watermark, as the server writes positions only a few
// times a second. Then the watermark must be of this very stream, and the stream must
// reach that far.
func (j *Journal) rightPosition(name string, at uint64, stream jetstream.StreamState) (right uint64, cause string) {
	mark, marked := j.conn.Watermarks.Read(name)
	marked = marked && j.conn.Embedded() // on a cluster, another relay may have gone on
	switch {
	case marked && max(mark.Value, stream.FirstSeq-1) < at:
		return min(max(mark.Value, stream.FirstSeq-1), stream.LastSeq), "it was beyond the sink's newest acknowledgement"
	case at > stream.LastSeq:
		return stream.LastSeq, "it was beyond the newest record"
	case marked && mark.Stream == j.made && at < mark.Value && mark.Value <= stream.LastSeq:
		return mark.Value, ""
	}
	return at, ""
}

// acknowledged returns the newest record acknowledged by this process. It is false
// before the first session.
func (s *Source) acknowledged() (seq uint64, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked, s.started
}
