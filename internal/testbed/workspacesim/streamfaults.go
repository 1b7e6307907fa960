package workspacesim

import (
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// StreamFaults are the faults of an environment's stream, whatever the API declares. The
// zero value is a healthy stream.
type StreamFaults struct {
	// Silent pushes nothing. The events of that time count as unstreamed, and queued ones
	// are dropped.
	Silent bool
	// Hold keeps the events in the queue. They are pushed once it ends: a late burst.
	Hold bool
	// PushInactive also pushes while the status is not [StatusActive].
	PushInactive bool
	// Secret replaces the password or API key of the pushes, unless empty.
	Secret secret.Text
	// Lateness is taken off the time of each event, as by a slow clock; below 0: by one
	// ahead.
	Lateness time.Duration
	// OneIn streams only one event in so many. The others count as unstreamed. 0 and 1 are all.
	OneIn uint64
}

// SetStreamFaults replaces the faults of an environment's stream.
func (s *Simulator) SetStreamFaults(projectSlug, environmentSlug string, f StreamFaults) error {
	e, err := s.find(projectSlug, environmentSlug)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.faults = f
	e.stream.setFaults(f)
	s.setConfig(e, e.streaming)
	return nil
}

func (st *stream) setFaults(f StreamFaults) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.held, st.lateness, st.oneIn = f.Hold, f.Lateness, max(f.OneIn, 1)
	st.moved.Broadcast()
}

// Burst lets n events of an environment arrive at once. They happened evenly over span,
// the first one age ago. A paused environment bursts too.
func (s *Simulator) Burst(projectSlug, environmentSlug string, n int, age, span time.Duration) error {
	if n < 1 || n > s.opts.QueueEvents || age < 0 || span < 0 || span > age {
		return fmt.Errorf("burst: events must be in 1 to %d, and age and span not negative, nor span above age", s.opts.QueueEvents)
	}
	e, err := s.find(projectSlug, environmentSlug)
	if err != nil {
		return err
	}
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	e.stream.happenAt(uint64(n), s.opts.Now().Add(-age), span)
	return nil
}
