package relay

import (
	"sync"
	"time"
)

// Delivery is the state of the deliveries to one sink since the process started.
type Delivery struct {
	// Events counts the delivered events, including those that match left out.
	Events int64 `json:"delivered_events"`
	// LastSuccess is when the sink last acknowledged events.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// FailingSince is when the deliveries that are being retried began to fail; zero if none
	// is.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// LastError is the error of the newest failed attempt, at LastErrorAt. A later success does
	// not clear it.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// LastErrorClass is the class of LastError; see [ClassOf].
	LastErrorClass Class `json:"last_error_class,omitempty"`

	newest  time.Time             // when the relay received the event that was delivered last
	failing map[*outage]time.Time // since when each failing pump fails: a sink may have several
}

// deliveries holds the state of each sink's deliveries. Its zero value is empty.
type deliveries struct {
	mu sync.Mutex
	by map[string]*kept // by sink; guarded by mu
}

// kept is what is known of the deliveries to one sink.
type kept struct {
	Delivery
	past

	bytes, attempts, failures, retries, rejected int64 // for the metrics
}

// failed notes a failed attempt.
func (d *kept) failed(at time.Time, err error) {
	d.LastError, d.LastErrorAt, d.LastErrorClass = err.Error(), at, ClassOf(err)
	d.add(at, func(m *Minute) { m.Failed++ })
	d.past.failed(at, d.LastError, d.LastErrorClass)
}

// Delivery returns the state of the deliveries to a sink.
func (m *Metrics) Delivery(sink string) (d Delivery) {
	m.note(sink, func(now *kept) { d = now.Delivery })
	return d
}

func (s *deliveries) note(sink string, change func(*kept)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*kept{}
	}
	if s.by[sink] == nil {
		s.by[sink] = &kept{past: past{began: time.Now()}}
	}
	change(s.by[sink])
}

func (s *deliveries) forget(sink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, sink)
}
