package journal

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrLettersFull says that a sink's dead letters take all of their budget: its events
// wait in the journal until some letters are replayed or discarded.
var ErrLettersFull = errors.New("the sink's dead letters are full")

// LetterUsage is what the dead letters of one sink take.
type LetterUsage struct {
	Letters uint64
	Bytes   int64 // on disk, rounded up by an eighth at most
}

// letterSubject is what a letter stands under: its sink, and its size, so that the
// server, which counts messages by subject, knows what each sink's letters take.
func (n names) letterSubject(sink string, size int) string {
	return n.deadSubject + "." + sink + "." + strconv.Itoa(sizeClass(size))
}

// sizeClass rounds up, so that there are eight sizes from each power of two to the next.
func sizeClass(size int) int {
	step := 1 << max(0, bits.Len(uint(size))-4)
	return (size + step - 1) / step * step
}

// LetterUsage counts the dead letters of each sink that has any.
func (j *Journal) LetterUsage(ctx context.Context) (map[string]LetterUsage, error) {
	info, err := j.dead.Info(ctx, jetstream.WithSubjectFilter(j.names.deadSubject+".>"))
	if err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	usage, unsized, rest := map[string]LetterUsage{}, uint64(0), int64(info.State.Bytes) //nolint:gosec // it is less than a disk
	for subject, n := range info.State.Subjects {
		sink, size, sized := strings.Cut(strings.TrimPrefix(subject, j.names.deadSubject+"."), ".")
		u := usage[sink]
		u.Letters += n
		if bytes, err := strconv.ParseInt(size, 10, 64); sized && err == nil {
			u.Bytes += int64(n) * bytes
			rest -= int64(n) * bytes
		} else {
			unsized += n
		}
		usage[sink] = u
	}
	if unsized > 0 { // letters of earlier versions, which take what the others leave
		j.shareRest(usage, info.State.Subjects, max(0, rest)/int64(unsized))
	}
	return usage, nil
}

// shareRest counts each letter whose subject names no size as so many bytes.
func (j *Journal) shareRest(usage map[string]LetterUsage, subjects map[string]uint64, each int64) {
	for sink, u := range usage {
		u.Bytes += int64(subjects[j.names.deadSubject+"."+sink]) * each
		usage[sink] = u
	}
}

// letterRoom returns an error while a sink's letters take all of their budget. The
// delivery that comes last may go over it, so that none is too large for ever.
func (j *Journal) letterRoom(ctx context.Context, sink string) error {
	budget := int64(j.cfg.DeadLetterBytes)
	if budget <= 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	usage, err := j.LetterUsage(asking)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if u := usage[sink]; u.Bytes >= budget {
		return fmt.Errorf("%w: %d of them take all of journal.dead_letter_bytes (%d); its events wait in the journal until "+
			"'auditrelay deadletters replay --sink %s' or discard makes room, or the budget is raised", ErrLettersFull, u.Letters, budget, sink)
	}
	return nil
}

// CountDeadLetters counts the dead letters of each sink.
func (j *Journal) CountDeadLetters(ctx context.Context) (map[string]uint64, error) {
	usage, err := j.LetterUsage(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]uint64, len(usage))
	for sink, u := range usage {
		out[sink] = u.Letters
	}
	return out, nil
}

var (
	lettersDesc      = prometheus.NewDesc("auditrelay_dead_letters", "Events that the sink refused for good, and that wait for a person.", []string{"sink"}, nil)
	letterBytesDesc  = prometheus.NewDesc("auditrelay_dead_letters_bytes", "Disk that the sink's dead letters take.", []string{"sink"}, nil)
	letterBudgetDesc = prometheus.NewDesc("auditrelay_dead_letters_budget_bytes", "Disk that each sink's dead letters may take; at that the sink's delivery waits.", nil, nil)
)

// lettersCollector asks for the usage when it is scraped.
type lettersCollector struct{ j *Journal }

func (c *lettersCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- lettersDesc
	ch <- letterBytesDesc
	ch <- letterBudgetDesc
}

func (c *lettersCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(letterBudgetDesc, prometheus.GaugeValue, float64(c.j.cfg.DeadLetterBytes))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	usage, err := c.j.LetterUsage(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(lettersDesc, err)
		return
	}
	for sink, u := range usage {
		ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(u.Letters), sink)
		ch <- prometheus.MustNewConstMetric(letterBytesDesc, prometheus.GaugeValue, float64(u.Bytes), sink)
	}
}
