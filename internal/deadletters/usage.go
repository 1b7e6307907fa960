package deadletters

import (
	"context"
	"errors"
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

// ErrFull means a sink's dead letters take all of their budget: its events wait in the
// journal until a person replays or discards some letters.
var ErrFull = errors.New("the sink's dead letters are full")

// Usage is the share of one sink in the dead letters.
type Usage struct {
	Letters uint64
	Bytes   int64 // on disk, rounded up by an eighth at most
}

// sizeClass rounds up to one of eight sizes from each power of two to the next.
func sizeClass(size int) int {
	step := 1 << max(0, bits.Len(uint(size))-4)
	return (size + step - 1) / step * step
}

// Usage counts the dead letters of each sink with any.
func (s *Store) Usage(ctx context.Context) (map[string]Usage, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject+".>"))
	if err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	usage, unsized := map[string]Usage{}, map[string]uint64{}
	others, rest := uint64(0), int64(info.State.Bytes) //nolint:gosec // it is less than a disk
	for subject, n := range info.State.Subjects {
		sink, size, _ := strings.Cut(strings.TrimPrefix(subject, s.subject+"."), ".")
		u := usage[sink]
		u.Letters += n
		if bytes, err := strconv.ParseInt(size, 10, 64); err == nil {
			u.Bytes += int64(n) * bytes
			rest -= int64(n) * bytes
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
	return usage, nil
}

// room returns an error while a sink's letters take all of their budget. The last
// delivery may exceed it; otherwise a large one would never fit.
func (s *Store) room(ctx context.Context, sink string) error {
	if s.budget <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streamserver.PublishTimeout)
	defer cancel()
	usage, err := s.Usage(ctx)
	if err != nil {
		return err
	}
	if u := usage[sink]; u.Bytes >= s.budget {
		return fmt.Errorf("%w: %d of them take all of journal.dead_letter_bytes (%d); its events wait in the journal until "+
			"'auditrelay deadletters replay --sink %s' or discard makes room, or the budget is raised", ErrFull, u.Letters, s.budget, sink)
	}
	return nil
}

var (
	lettersDesc = prometheus.NewDesc("auditrelay_sink_dead_letters", "Events that the sink refused for good, and that wait for a person.", []string{"sink"}, nil)
	bytesDesc   = prometheus.NewDesc("auditrelay_dead_letters_bytes", "Disk that the sink's dead letters take.", []string{"sink"}, nil)
	budgetDesc  = prometheus.NewDesc("auditrelay_dead_letters_budget_bytes", "Disk that each sink's dead letters may take; at that the sink's delivery waits.", nil, nil)
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
	ch <- budgetDesc
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(c.budget))
	usage, err := c.usage.Get()
	values := map[string][2]float64{}
	for _, sink := range c.sinks {
		if values[sink] = [2]float64{}; err != nil {
			values[sink] = [2]float64{math.NaN(), math.NaN()}
		}
	}
	for sink, u := range usage {
		values[sink] = [2]float64{float64(u.Letters), float64(u.Bytes)}
	}
	for sink, v := range values {
		ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, v[0], sink)
		ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, v[1], sink)
	}
}
