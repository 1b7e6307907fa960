package journal

import "time"

// Backlog is what a sink has not acknowledged.
type Backlog struct {
	// Events that wait. Events whose commit could not be confirmed count too.
	Events int64
	// Oldest is when the first of them was committed; zero without any.
	Oldest time.Time
}

// Backlog counts the events after the sink's newest acknowledged record. It reads nothing.
// It returns false unless this process reads for the sink.
func (j *Journal) Backlog(sink string) (Backlog, bool) {
	s := j.reader(sink)
	if s == nil {
		return Backlog{}, false
	}
	end := j.end.get()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.ahead); n > 0 && s.ahead[n-1].pos > end.pos {
		end = s.ahead[n-1] // a commit whose end is not noted yet
	}
	if s.acked.pos >= end.pos {
		return Backlog{}, true
	}
	b := Backlog{Events: max(1, int64(end.events-s.acked.events)), Oldest: time.Now()}
	if len(s.ahead) > 0 {
		b.Oldest = s.ahead[0].at
	}
	return b, true
}
