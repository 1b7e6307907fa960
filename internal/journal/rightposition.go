package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// checkPosition sets a sink's position right: before the first session as
// rightPosition says, and later to what this process has acknowledged.
func (s *Source) checkPosition(ctx context.Context) error {
	info, err := s.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the position of %s: %w", s.name, err)
	}
	stream, err := s.j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	at := info.AckFloor.Stream
	right, cause := s.rightPosition(at, stream.State)
	if acked, started := s.acknowledged(); started {
		right, cause = acked, "it was beyond what the sink has acknowledged"
	}
	if right == at {
		return nil
	}
	if _, err := s.j.stream.ResetConsumerToSequence(ctx, s.name, right+1); err != nil {
		return fmt.Errorf("set the position of %s from %d to %d: %w", s.name, at, right, err)
	}
	if right > at {
		s.j.log.Info("a sink goes on where it was, which the server had not written yet",
			"consumer", s.name, "position", at, "set_to", right)
		return nil
	}
	s.j.log.Error("a sink's position was damaged and was set back; the sink may get duplicates",
		"consumer", s.name, "position", at, "set_to", right, "cause", cause)
	return nil
}

// rightPosition is where a sink's position should be that is at some record.
//
// It is set back where it cannot be right: beyond the newest record (the stream
// lost its end, and what is appended next would pass for acknowledged), or
// beyond what the sink has acknowledged (the server keeps no checksum of it).
// Being set back means duplicates; not being set back would mean loss.
//
// It is set forward to what the sink has acknowledged, as the server writes
// positions some times a second only. That must be sure: the mark is of this
// very stream, whose positions are given out once, and the stream reaches as far.
func (s *Source) rightPosition(at uint64, stream jetstream.StreamState) (right uint64, cause string) {
	mark, marked := s.j.conn.marks.Read(s.name)
	marked = marked && s.j.conn.embedded != nil // elsewhere another relay may have gone on
	switch {
	case marked && max(mark.Value, stream.FirstSeq-1) < at:
		return min(max(mark.Value, stream.FirstSeq-1), stream.LastSeq), "it was beyond what the sink has acknowledged"
	case at > stream.LastSeq:
		return stream.LastSeq, "it was beyond the newest record"
	case marked && mark.Stream == s.j.made && at < mark.Value && mark.Value <= stream.LastSeq:
		return mark.Value, ""
	}
	return at, ""
}

// acknowledged is the newest record that this process has acknowledged; false
// before its first session.
func (s *Source) acknowledged() (seq uint64, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked, s.started
}
