package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ask asks all logs at once, since they may be far away. Answers and errors are in the order of the logs.
func ask[T any](s *Set, question func(*Journal) (T, error)) (answers []T, failed []error) {
	answers, failed = make([]T, len(s.logs)), make([]error, len(s.logs))
	var asking sync.WaitGroup
	for shard, j := range s.logs {
		asking.Go(func() {
			answers[shard], failed[shard] = question(j)
			if failed[shard] != nil && len(s.logs) > 1 {
				failed[shard] = fmt.Errorf("shard %d: %w", shard, failed[shard])
			}
		})
	}
	asking.Wait()
	return answers, failed
}

// Usage describes all logs together: budgets are added up, and times are the worst of them.
func (s *Set) Usage(ctx context.Context) (Usage, error) {
	all, failed := ask(s, func(j *Journal) (Usage, error) { return j.Usage(ctx) })
	return sumOfUsage(all), errors.Join(failed...)
}

func sumOfUsage(all []Usage) Usage {
	sum := all[0]
	for _, u := range all[1:] {
		sum.Bytes, sum.MaxBytes, sum.Undelivered, sum.Records = sum.Bytes+u.Bytes, sum.MaxBytes+u.MaxBytes, sum.Undelivered+u.Undelivered, sum.Records+u.Records
		if u.Newest.After(sum.Newest) {
			sum.Newest = u.Newest
		}
		if u.Oldest.After(sum.Oldest) {
			sum.Oldest, sum.ReplaySeconds = u.Oldest, u.ReplaySeconds
		}
		if u.SecondsToFull != nil && (sum.SecondsToFull == nil || *u.SecondsToFull < *sum.SecondsToFull) {
			sum.SecondsToFull = u.SecondsToFull
		}
	}
	return sum
}

// Ready returns an error if no log would take a push. Of several logs, remark names those that would
// not, and usage leaves out those that do not answer.
func (s *Set) Ready(ctx context.Context) (usage Usage, remark string, err error) {
	all, failed := ask(s, func(j *Journal) (Usage, error) {
		u, err := j.Usage(ctx)
		if err == nil {
			if err = j.Refusing(ctx); err != nil {
				err = fmt.Errorf("the last push was refused: %w", err)
			}
		}
		return u, err
	})
	var refusing []string
	for _, err := range failed {
		if err != nil {
			refusing = append(refusing, err.Error())
		}
	}
	if len(refusing) == len(s.logs) {
		return sumOfUsage(all), "", errors.Join(failed...)
	}
	return sumOfUsage(all), strings.Join(refusing, "; "), nil
}

// Backlog adds up what a sink has not acknowledged. It returns false unless this process reads all
// logs for the sink.
func (s *Set) Backlog(sink string) (sum Backlog, reading bool) {
	for _, j := range s.logs {
		b, reading := j.Backlog(sink)
		if !reading {
			return Backlog{}, false
		}
		sum.Events, sum.Oldest = sum.Events+b.Events, earlier(sum.Oldest, b.Oldest)
	}
	return sum, true
}

// Positions are those of all sinks in each log.
func (s *Set) Positions(ctx context.Context) ([][]SinkPosition, error) {
	all, failed := ask(s, func(j *Journal) ([]SinkPosition, error) { return j.Sinks(ctx) })
	return all, errors.Join(failed...)
}

// Sinks are the positions of all sinks. Of several logs, each sink's are added up.
func (s *Set) Sinks(ctx context.Context) ([]SinkPosition, error) {
	all, err := s.Positions(ctx)
	if err != nil || len(all) == 1 {
		return all[0], err
	}
	var sums []SinkPosition
	for shard := range all {
		for _, p := range all[shard] {
			i, known := slices.BinarySearchFunc(sums, p.Sink, func(s SinkPosition, name string) int { return strings.Compare(s.Sink, name) })
			if !known {
				sums = slices.Insert(sums, i, SinkPosition{Sink: p.Sink})
			}
			sums[i].add(p, shard)
		}
	}
	return sums, nil
}

// add adds a sink's position in one log to those in others.
func (sum *SinkPosition) add(p SinkPosition, shard int) {
	sum.Shards = append(sum.Shards, p)
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
