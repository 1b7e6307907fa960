package relay

import (
	"sync"
	"time"
)

// Delivery is how deliveries to one sink have gone since the process began.
type Delivery struct {
	// Events counts the delivered ones, those left out by match included.
	Events int64 `json:"delivered_events"`
	// LastSuccess is when the sink last acknowledged events.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// FailingSince is when the deliveries under retry began to fail; zero while all work.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// LastError is of the newest failed attempt, at LastErrorAt. It stays after a success.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// deliveries holds how each sink's deliveries go. Its zero value is empty.
type deliveries struct {
	mu sync.Mutex
	by map[string]*Delivery // by sink; guarded by mu
}

// Delivery returns how the deliveries to a sink have gone.
func (m *Metrics) Delivery(sink string) (d Delivery) {
	m.deliveries.note(sink, func(now *Delivery) { d = *now })
	return d
}

func (s *deliveries) note(sink string, change func(*Delivery)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*Delivery{}
	}
	if s.by[sink] == nil {
		s.by[sink] = &Delivery{}
	}
	change(s.by[sink])
}

func (s *deliveries) failed(sink string, err error) {
	s.note(sink, func(d *Delivery) { d.LastError, d.LastErrorAt = err.Error(), time.Now() })
}

func (s *deliveries) delivered(sink string, events int) {
	s.note(sink, func(d *Delivery) { d.Events, d.LastSuccess = d.Events+int64(events), time.Now() })
}

func (s *deliveries) failing(sink string, since time.Time) {
	s.note(sink, func(d *Delivery) { d.FailingSince = since })
}
