package relay

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
}

// Delivery returns the state of the deliveries to a sink.
func (m *Metrics) Delivery(sink string) (d Delivery) {
	m.deliveries.note(sink, func(now *kept) { d = now.Delivery })
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

func (s *deliveries) failed(sink string, err error) {
	s.note(sink, func(d *kept) {
		d.LastError, d.LastErrorAt, d.LastErrorClass = err.Error(), time.Now(), ClassOf(err)
		d.add(d.LastErrorAt, func(m *Minute) { m.Failed++ })
		d.failed(d.LastErrorAt, d.LastError, d.LastErrorClass)
	})
}

func (s *deliveries) refused(sink string, events int) {
	s.note(sink, func(d *kept) { d.add(time.Now(), func(m *Minute) { m.Refused += int64(events) }) })
}

func (s *deliveries) delivered(sink string, events []Event) {
	s.note(sink, func(d *kept) {
		d.Events, d.LastSuccess, d.newest = d.Events+int64(len(events)), time.Now(), events[len(events)-1].Received
		d.add(d.LastSuccess, func(m *Minute) { m.Delivered += int64(len(events)) })
	})
}

// failing notes since when a pump of a sink fails; zero for one that works, or has ended. It reports
// whether some pump of the sink fails.
func (s *deliveries) failing(sink string, pump *outage, since time.Time) (some bool) {
	s.note(sink, func(d *kept) {
		if d.failing == nil {
			d.failing = map[*outage]time.Time{}
		}
		if d.failing[pump] = since; since.IsZero() {
			delete(d.failing, pump)
		}
		d.FailingSince = time.Time{}
		for _, at := range d.failing {
			if d.FailingSince.IsZero() || at.Before(d.FailingSince) {
				d.FailingSince = at
			}
		}
		some = len(d.failing) > 0
	})
	return some
}

var (
	newestDesc  = prometheus.NewDesc("auditrelay_sink_last_delivered_received_timestamp_seconds", "When the relay received the event that was delivered last; NaN until this process delivers one.", []string{"sink"}, nil)
	successDesc = prometheus.NewDesc("auditrelay_sink_last_success_timestamp_seconds", "When the sink last acknowledged events; NaN until it acknowledges any to this process.", []string{"sink"}, nil)
	sinceDesc   = prometheus.NewDesc("auditrelay_sink_failing_since_timestamp_seconds", "When the deliveries that are being retried began to fail; NaN while all work.", []string{"sink"}, nil)
	errorDesc   = prometheus.NewDesc("auditrelay_sink_last_error", "1 for the class of the last failed attempt, 0 for the others; all are 0 before the first one.", []string{"sink", "class"}, nil)
)

// Describe implements [prometheus.Collector].
func (s *deliveries) Describe(ch chan<- *prometheus.Desc) {
	ch <- newestDesc
	ch <- successDesc
	ch <- sinceDesc
	ch <- errorDesc
}

// Collect implements [prometheus.Collector].
func (s *deliveries) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	now := make(map[string]Delivery, len(s.by))
	for sink, d := range s.by {
		now[sink] = d.Delivery
	}
	s.mu.Unlock()
	for sink, d := range now {
		ch <- prometheus.MustNewConstMetric(newestDesc, prometheus.GaugeValue, seconds(d.newest), sink)
		ch <- prometheus.MustNewConstMetric(successDesc, prometheus.GaugeValue, seconds(d.LastSuccess), sink)
		ch <- prometheus.MustNewConstMetric(sinceDesc, prometheus.GaugeValue, seconds(d.FailingSince), sink)
		for _, class := range Classes() {
			ch <- prometheus.MustNewConstMetric(errorDesc, prometheus.GaugeValue, flag(class == d.LastErrorClass), sink, string(class))
		}
	}
}

// seconds converts a time for Prometheus; the zero time becomes NaN.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return float64(t.UnixMilli()) / 1e3
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
