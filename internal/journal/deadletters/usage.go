package deadletters

import (
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Usage is the share of one sink in the dead letters.
type Usage struct {
	Letters uint64
	Bytes   int64 // in the log
	// BySource divides Bytes by the events' sources.
	BySource map[string]int64
}

// Fullest is the source with the most bytes.
func (u *Usage) Fullest() (source string, bytes int64) {
	for of, n := range u.BySource {
		if n > bytes || n == bytes && of < source {
			source, bytes = of, n
		}
	}
	return source, bytes
}

// Usage counts the dead letters of each sink with any.
func (s *Store) Usage(ctx context.Context) (map[string]Usage, error) {
	if _, err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	usage, _ := s.index.usage()
	return usage, nil
}

// usage counts the letters. whole is false while the log is being read for the first time.
func (x *index) usage() (usage map[string]Usage, whole bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	usage = map[string]Usage{}
	for key, of := range x.shares {
		u := usage[key.sink]
		if u.BySource == nil {
			u.BySource = map[string]int64{}
		}
		u.Letters += of.letters
		u.Bytes += of.bytes
		u.BySource[key.source] += of.bytes
		usage[key.sink] = u
	}
	return usage, x.whole()
}

// Beyond has f told how many bytes each source's letters take beyond their budgets: once
// the letters are known, and after each change of it. f gets all sources with any, its
// calls do not overlap, and it must not call the store.
func (s *Store) Beyond(f func(map[string]int64)) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.beyond = f
	if s.index.whole() {
		s.index.tell()
	}
}

// tell tells how much each source's letters take beyond their budgets. mu is held.
func (x *index) tell() {
	if x.beyond == nil || x.budget <= 0 {
		return
	}
	beyond := map[string]int64{}
	for key, of := range x.shares {
		if of.bytes > x.budget {
			beyond[key.source] += of.bytes - x.budget
		}
	}
	x.beyond(beyond)
}

var (
	lettersDesc = prometheus.NewDesc("auditrelay_sink_dead_letters", "Events that the sink refused for good, and that wait for a person.", []string{"sink"}, nil)
	bytesDesc   = prometheus.NewDesc("auditrelay_dead_letters_bytes", "Disk that the sink's dead letters take.", []string{"sink"}, nil)
	fullestDesc = prometheus.NewDesc("auditrelay_dead_letters_fullest_bytes", "Disk that the dead letters of one environment, or of the trail, take at the sink: the largest such part.", []string{"sink"}, nil)
	budgetDesc  = prometheus.NewDesc("auditrelay_dead_letters_budget_bytes", "Disk that the dead letters of one environment may take at one sink. What is beyond it counts as undelivered events.", nil, nil)
)

// collector gives the usage when it is scraped. Until the letters are known, the
// configured sinks' values are NaN.
type collector struct{ *Store }

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- lettersDesc
	ch <- bytesDesc
	ch <- fullestDesc
	ch <- budgetDesc
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	usage, whole := c.index.usage()
	gauge := func(desc *prometheus.Desc, value int64, of ...string) {
		v := float64(value)
		if len(of) > 0 && !whole {
			v = math.NaN()
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, of...)
	}
	gauge(budgetDesc, c.index.budget)
	if !whole {
		clear(usage)
	}
	for _, sink := range *c.sinks.Load() {
		if _, has := usage[sink]; !has { // one without letters has metrics, too
			usage[sink] = Usage{}
		}
	}
	for sink, u := range usage {
		_, fullest := u.Fullest()
		gauge(lettersDesc, int64(u.Letters), sink) //nolint:gosec // a count
		gauge(bytesDesc, u.Bytes, sink)
		gauge(fullestDesc, fullest, sink)
	}
}
