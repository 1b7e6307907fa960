package journal

import (
	"context"
	"encoding/json"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
)

// overlapPatience bounds the count of what was delivered twice: a relay may be about to stop.
const overlapPatience = 5 * time.Second

// countOverlap counts the events that this relay has delivered although another one had taken the
// sink over: those between the position that the other one began with, and the newest one that is
// acknowledged here. A delivery whose answer did not come is not among them. If several relays have
// taken over since, the newest one counts, so that it may be too few.
func (s *Source) countOverlap() {
	if s.turn.Number() == 0 || s.placed { // nobody takes over, or nothing comes twice
		return
	}
	s.mu.Lock()
	acked := s.acked.pos
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), overlapPatience)
	defer cancel()
	v, err := s.j.table.Get(ctx, s.j.keys.position+s.sink)
	var now positionValue
	if err != nil || json.Unmarshal(v.Data, &now) != nil || now.Epoch <= s.turn.Number() || now.Began >= acked {
		return
	}
	events := uint64(0)
	for item, err := range between(ctx, s.j.events, now.Began+1, acked+1) {
		if err != nil {
			break // it counts what it has read
		}
		if item.Record != nil {
			events += record.Count(item.Record.Data)
		}
	}
	s.j.metrics.overlap.WithLabelValues(s.sink).Add(float64(events))
	s.j.log.Warn("a sink gets events twice: this relay had delivered them before it knew that another one has taken over",
		"sink", s.sink, "events", events, "after", now.Began, "through", acked)
}
