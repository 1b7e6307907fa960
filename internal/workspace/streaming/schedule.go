package streaming

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// scheduledReason is the reason of a rotation by age.
const scheduledReason = "rotation_schedule"

// gate keeps the scheduled rotations of all environments apart, so not all credentials
// are new at the same moment.
type gate struct {
	apart time.Duration

	mu   sync.Mutex // guards next
	next time.Time
}

// mostApart bounds the time between the rotations of two environments.
const mostApart = time.Minute

// newGate leaves room for all environments within a part of the age.
func newGate(o Options) *gate {
	return &gate{apart: min(o.RotateEvery/time.Duration(20*len(o.Environments)+1), mostApart)}
}

// pass reports whether a rotation may begin now.
func (g *gate) pass(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.next.Sub(now); wait > 0 && wait <= g.apart { // a clock that was ahead then stops nothing
		return false
	}
	g.next = now.Add(g.apart)
	return true
}

// schedule rotates a generated credential by its age. The credentials store knows when it was
// made, so a restart neither skips a rotation nor repeats one.
type schedule struct {
	every    time.Duration // 0: never
	gate     *gate
	failures int // in a row
	next     time.Time
	err      error // of the last attempt
}

// due reports whether a credential made at a time is too old. Each environment has its own
// time within the last tenth of the age.
func (s *schedule) due(env credentials.Environment, made, now time.Time) bool {
	if s.every == 0 || made.IsZero() {
		return false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(env.Username())) // never fails
	early := time.Duration(float64(s.every) / 10 * float64(h.Sum32()) / (1 << 32))
	return now.Sub(made) >= s.every-early || made.Sub(now) > s.every // made by a clock far ahead
}

// rotateOld rotates a credential that is too old. A crash before the PUT leaves the age as it
// is; after a crash that follows it, the next look promotes the new one.
func (w *watcher) rotateOld(ctx context.Context) error {
	s := &w.schedule
	if s.every == 0 || w.env.Stream.Relay == nil || w.contest.open {
		return nil
	}
	own, err := w.options.Credentials.State(w.environment())
	now := time.Now()
	if err != nil || own.Current == "" || !s.due(w.environment(), own.Made, now) {
		return err
	}
	if now.Before(s.next) {
		return s.err
	}
	if !s.gate.pass(now) {
		return nil
	}
	if s.err = w.put(ctx, order{reason: []string{scheduledReason}}); s.err != nil {
		s.failures++
		s.next = now.Add(putWait(w.options.Interval, s.failures))
		s.err = fmt.Errorf("rotate the credential by schedule: %w", s.err)
		return s.err
	}
	s.failures, s.next = 0, time.Time{}
	return nil
}
