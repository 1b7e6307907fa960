package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/relay"
)

// each asks all logs at once, since they may be far away. Its errors are those of the logs, in order.
func (s *Set) each(ask func(shard int, j *journal.Journal) error) []error {
	failed := make([]error, len(s.logs))
	var asking sync.WaitGroup
	for shard, j := range s.logs {
		asking.Go(func() {
			if failed[shard] = ask(shard, j); failed[shard] != nil && len(s.logs) > 1 {
				failed[shard] = fmt.Errorf("shard %d: %w", shard, failed[shard])
			}
		})
	}
	asking.Wait()
	return failed
}

// Usage describes all logs together: budgets are added up, and times are the worst of them.
func (s *Set) Usage(ctx context.Context) (journal.Usage, error) {
	all := make([]journal.Usage, len(s.logs))
	err := errors.Join(s.each(func(shard int, j *journal.Journal) (err error) {
		all[shard], err = j.Usage(ctx)
		return err
	})...)
	return sumOf(all), err
}

func sumOf(all []journal.Usage) journal.Usage {
	sum := all[0]
	for _, u := range all[1:] {
		sum.Bytes, sum.MaxBytes, sum.Undelivered, sum.Records = sum.Bytes+u.Bytes, sum.MaxBytes+u.MaxBytes, sum.Undelivered+u.Undelivered, sum.Records+u.Records
		if u.Newest.After(sum.Newest) {
			sum.Newest = u.Newest
		}
		if !u.Oldest.IsZero() && (sum.Oldest.IsZero() || u.Oldest.After(sum.Oldest)) {
			sum.Oldest, sum.ReplaySeconds = u.Oldest, u.ReplaySeconds
		}
		if u.SecondsToFull != nil && (sum.SecondsToFull == nil || *u.SecondsToFull < *sum.SecondsToFull) {
			sum.SecondsToFull = u.SecondsToFull
		}
	}
	return sum
}

// Span is [journal.Journal.Span] of all logs, one after the other.
func (s *Set) Span(ctx context.Context, since, until time.Time, limit relay.BatchLimit, keep func(*relay.Event) bool) (*journal.Span, error) {
	return journal.SpanOf(ctx, s.logs, since, until, limit, keep)
}

// Ready returns an error if no log would take a push. Of several logs, remark names those that would
// not, and usage leaves out those that do not answer.
func (s *Set) Ready(ctx context.Context) (usage journal.Usage, remark string, err error) {
	all := make([]journal.Usage, len(s.logs))
	failed := s.each(func(shard int, j *journal.Journal) (err error) {
		if all[shard], err = j.Usage(ctx); err != nil {
			return err
		}
		if err := j.Refusing(ctx); err != nil {
			return fmt.Errorf("the last push was refused: %w", err)
		}
		return nil
	})
	var refusing []string
	for _, err := range failed {
		if err != nil {
			refusing = append(refusing, err.Error())
		}
	}
	if len(refusing) == len(s.logs) {
		return sumOf(all), "", errors.Join(failed...)
	}
	return sumOf(all), strings.Join(refusing, "; "), nil
}

// Backlog adds up what a sink has not acknowledged. It returns false unless this process reads all
// logs for the sink.
func (s *Set) Backlog(sink string) (sum journal.Backlog, reading bool) {
	for _, j := range s.logs {
		b, reading := j.Backlog(sink)
		if !reading {
			return journal.Backlog{}, false
		}
		sum.Events += b.Events
		if !b.Oldest.IsZero() && (sum.Oldest.IsZero() || b.Oldest.Before(sum.Oldest)) {
			sum.Oldest = b.Oldest
		}
	}
	return sum, true
}

// Positions are those of all sinks in each log.
func (s *Set) Positions(ctx context.Context) (all [][]journal.SinkPosition, err error) {
	all = make([][]journal.SinkPosition, len(s.logs))
	err = errors.Join(s.each(func(shard int, j *journal.Journal) (err error) {
		all[shard], err = j.Sinks(ctx)
		return err
	})...)
	return all, err
}

// Sinks are the positions of all sinks. Of several logs, each sink's are added up.
func (s *Set) Sinks(ctx context.Context) ([]journal.SinkPosition, error) {
	all, err := s.Positions(ctx)
	if err != nil || len(all) == 1 {
		return all[0], err
	}
	var sums []journal.SinkPosition
	for shard := range all {
		for _, p := range all[shard] {
			i, known := slices.BinarySearchFunc(sums, p.Sink, func(s journal.SinkPosition, name string) int { return strings.Compare(s.Sink, name) })
			if !known {
				sums = slices.Insert(sums, i, journal.SinkPosition{Sink: p.Sink})
			}
			sums[i].Shards = append(sums[i].Shards, p)
			add(&sums[i], p, shard)
		}
	}
	return sums, nil
}

func add(sum *journal.SinkPosition, p journal.SinkPosition, shard int) {
	sum.Acknowledged, sum.Pending, sum.HeldBytes = sum.Acknowledged+p.Acknowledged, sum.Pending+p.Pending, sum.HeldBytes+p.HeldBytes
	sum.Reading = sum.Reading || p.Reading
	sum.Oldest, sum.Kept = earlier(sum.Oldest, p.Oldest), earlier(sum.Kept, p.Kept)
	if p.Unknown != "" {
		sum.Unknown = strings.TrimPrefix(sum.Unknown+fmt.Sprintf("; shard %d: %s", shard, p.Unknown), "; ")
	}
}

// earlier is the earlier time, where zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
