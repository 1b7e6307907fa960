package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

const (
	// lookPause is the time between two looks at the layout, and lookPatience how long one may take.
	lookPause    = time.Second
	lookPatience = 3 * time.Second
	// StaleAfter is how long a layout counts after it was asked for. The servers elect a leader
	// within that.
	StaleAfter = 15 * time.Second
	// admitPause is the time between two looks at whether the old logs are drained.
	admitPause = 200 * time.Millisecond
)

// follow looks at the layout until ctx ends.
func (s *Set) follow(ctx context.Context) {
	for retry.Sleep(ctx, lookPause) == nil {
		began := time.Since(s.start)
		l, err := s.look(ctx)
		if err != nil {
			s.opts.Logger.Debug("the layout of the shards was not read", "error", err)
			continue
		}
		s.take(l)
		s.seen.Store(int64(began))
	}
}

func (s *Set) look(ctx context.Context) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if err := s.opts.Check(ctx); err != nil {
		return nil, err
	}
	return loadLayout(ctx, s.table)
}

func (s *Set) isStale() bool {
	return time.Since(s.start)-time.Duration(s.seen.Load()) > s.stale
}

// take makes a layout the present one, and returns once no append follows an earlier one. Records
// are marked with its number before anything is appended under it.
func (s *Set) take(l *layout) {
	s.mu.Lock()
	was := s.now
	if l.Number <= was.Number {
		s.mu.Unlock()
		return
	}
	s.marks.Store(l.Number)
	s.now = &era{layout: *l}
	s.mu.Unlock()
	if l.Logs > len(s.logs) {
		s.opts.Failed(fmt.Errorf("the events of this cluster are spread over %d shards since this relay was started, and it has %d open; restart it", l.Logs, len(s.logs)))
	}
	was.appends.Wait()
	s.said.Store(l.Number)
	s.opts.Logger.Info("the events are spread in another way", "shards", l.Shards, "next", l.Next, "layout", l.Number)
}

// admit waits until a sink has had everything that was in the logs when the layout of a number, or an
// earlier one, was made.
func (s *Set) admit(ctx context.Context, sink string, number uint64) error {
	for said := false; ; said = true {
		had, err := s.hasHad(ctx, sink, number)
		if had {
			return nil
		}
		if !said {
			s.opts.Logger.Info("a sink waits until it has had what was in the shards before they were changed", "sink", sink, "layout", number, "error", err)
		}
		if err := retry.Sleep(ctx, admitPause); err != nil {
			return err
		}
	}
}

func (s *Set) hasHad(ctx context.Context, sink string, number uint64) (bool, error) {
	l := s.layoutNow()
	if l.Number < number { // another relay knew the layout first
		var err error
		if l, err = s.look(ctx); err != nil || l.Number < number {
			return false, err
		}
	}
	for _, m := range l.Moves {
		if m.Number > number {
			continue
		}
		for shard, end := range m.Ends {
			if shard >= len(s.logs) {
				return false, nil // the relay ends
			}
			at, known, err := s.logs[shard].Acknowledged(ctx, sink)
			if err != nil || !known || at < end {
				return false, err
			}
		}
	}
	return true, nil
}

// saying is what a relay tells the others with its heartbeats.
type saying struct {
	// Shards is the configured number, and Layout the newest layout that all its appends follow.
	Shards int    `json:"shards"`
	Layout uint64 `json:"layout"`
}

// Says is what the relay tells the others with its heartbeats.
func (s *Set) Says() string {
	text, _ := json.Marshal(saying{s.wanted, s.said.Load()}) // two numbers can always be encoded
	return string(text)
}
