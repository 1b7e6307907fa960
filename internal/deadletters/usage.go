package deadletters

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// Usage is the share of one sink in the dead letters.
type Usage struct {
	Letters uint64
	Bytes   int64 // on disk, rounded up by an eighth at most
	// BySource divides Bytes by the events' sources, except for letters of earlier versions.
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

// count is [Store.Usage] for the listener of Beyond. A failure leaves the account to the
// next count.
func (s *Store) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, streamserver.PublishTimeout)
	defer cancel()
	_, _ = s.Usage(ctx)
}

// tell tells how much each source's letters take beyond their budgets.
func (s *Store) tell(usage map[string]Usage) {
	if s.beyond == nil || s.budget <= 0 {
		return
	}
	beyond := map[string]int64{}
	for _, u := range usage {
		for source, bytes := range u.BySource {
			if bytes > s.budget {
				beyond[source] += bytes - s.budget
			}
		}
	}
	s.beyond(beyond)
}

// sizeClass rounds up to one of eight sizes from each power of two to the next.
func sizeClass(size int) int {
	step := 1 << max(0, bits.Len(uint(size))-4)
	return (size + step - 1) / step * step
}

// Usage counts the dead letters of each sink with any.
func (s *Store) Usage(ctx context.Context) (map[string]Usage, error) {
	s.mu.Lock() // an older count must not be told after a newer one
	defer s.mu.Unlock()
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject+".>"))
	if err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	usage, unsized := map[string]Usage{}, map[string]uint64{}
	others, rest := uint64(0), int64(info.State.Bytes) //nolint:gosec // it is less than a disk
	for subject, n := range info.State.Subjects {
		sink, size, _ := strings.Cut(strings.TrimPrefix(subject, s.subject+"."), ".")
		size, source, _ := strings.Cut(size, ".")
		u := usage[sink]
		u.Letters += n
		if bytes, err := strconv.ParseInt(size, 10, 64); err == nil {
			u.Bytes += int64(n) * bytes
			rest -= int64(n) * bytes
			u.add(source, int64(n)*bytes)
		} else {
			unsized[sink] += n
			others += n
		}
		usage[sink] = u
	}
	for sink, n := range unsized { // letters of earlier versions share the rest
		u := usage[sink]
		u.Bytes += int64(n) * max(0, rest) / int64(others)
		usage[sink] = u
	}
	s.tell(usage)
	return usage, nil
}

// add adds the bytes of a source, given as in a subject.
func (u *Usage) add(encoded string, bytes int64) {
	source, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(source) == 0 {
		return // of an earlier version
	}
	if u.BySource == nil {
		u.BySource = map[string]int64{}
	}
	u.BySource[string(source)] += bytes
}

var (
	lettersDesc = prometheus.NewDesc("auditrelay_sink_dead_letters", "Events that the sink refused for good, and that wait for a person.", []string{"sink"}, nil)
	bytesDesc   = prometheus.NewDesc("auditrelay_dead_letters_bytes", "Disk that the sink's dead letters take.", []string{"sink"}, nil)
	fullestDesc = prometheus.NewDesc("auditrelay_dead_letters_fullest_bytes", "Disk that the dead letters of one environment, or of the trail, take at the sink: the largest such part.", []string{"sink"}, nil)
	budgetDesc  = prometheus.NewDesc("auditrelay_dead_letters_budget_bytes", "Disk that the dead letters of one environment may take at one sink. What is beyond it counts as undelivered events.", nil, nil)
)

// collector asks for the usage when it is scraped, once a second at most. While the server
// does not answer, the configured sinks' values are NaN.
type collector struct {
	budget int64
	sinks  []string
	usage  *streams.Kept[map[string]Usage]
}

func newCollector(s *Store, sinks []string) *collector {
	return &collector{s.budget, sinks, streams.Keep(s.Usage)}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- lettersDesc
	ch <- bytesDesc
	ch <- fullestDesc
	ch <- budgetDesc
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(c.budget))
	usage, err := c.usage.Get()
	values := map[string][3]float64{}
	for _, sink := range c.sinks {
		if values[sink] = [3]float64{}; err != nil {
			values[sink] = [3]float64{math.NaN(), math.NaN(), math.NaN()}
		}
	}
	for sink, u := range usage {
		_, fullest := u.Fullest()
		values[sink] = [3]float64{float64(u.Letters), float64(u.Bytes), float64(fullest)}
	}
	for sink, v := range values {
		ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, v[0], sink)
		ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, v[1], sink)
		ch <- prometheus.MustNewConstMetric(fullestDesc, prometheus.GaugeValue, v[2], sink)
	}
}
