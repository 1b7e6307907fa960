package workspacesim

import (
	"context"
	"fmt"
	"slices"
)

// Counts tell the fate of events. Generated is always the sum of Acknowledged, Dropped
// and InFlight.
type Counts struct {
	// Generated events happened while there was a destination for them.
	Generated uint64 `json:"generated"`
	// Acknowledged events got a 2xx.
	Acknowledged uint64 `json:"acknowledged"`
	// Dropped events found the queue full, got a 4xx, or waited when streaming was
	// switched off.
	Dropped uint64 `json:"dropped"`
	// InFlight events are queued, or under way.
	InFlight uint64 `json:"in_flight"`
	// Unstreamed events happened while there was no destination: they have no
	// id, and are not in Generated.
	Unstreamed uint64 `json:"unstreamed"`
	// Pushes counts attempts. Retries are all except first ones. Repushed are repetitions
	// of acknowledged pushes, not counted in Pushes.
	Pushes   uint64 `json:"pushes"`
	Retries  uint64 `json:"retries"`
	Repushed uint64 `json:"repushed"`
}

func (c *Counts) add(d Counts) {
	c.Generated += d.Generated
	c.Acknowledged += d.Acknowledged
	c.Dropped += d.Dropped
	c.InFlight += d.InFlight
	c.Unstreamed += d.Unstreamed
	c.Pushes += d.Pushes
	c.Retries += d.Retries
	c.Repushed += d.Repushed
}

// Ledger tells the fate of each event of an environment. The event with sequence number n
// has the id [EventID](Prefix, n). Numbers begin at 0.
type Ledger struct {
	Project      string  `json:"project_slug"`
	Environment  string  `json:"environment_slug"`
	Prefix       string  `json:"prefix"`
	Acknowledged []Range `json:"acknowledged"` // ascending
	Dropped      []Range `json:"dropped"`      // ascending
	Counts
}

// Counts returns the counts of all environments together.
func (s *Simulator) Counts() Counts {
	var sum Counts
	for _, st := range s.allStreams() {
		sum.add(st.ledger(false).Counts)
	}
	return sum
}

// Ledgers returns each environment's ledger, in the order of Environments.
func (s *Simulator) Ledgers() []Ledger {
	var all []Ledger
	for _, st := range s.allStreams() {
		all = append(all, st.ledger(true))
	}
	return all
}

func (s *Simulator) allStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*stream
	for _, e := range s.environments() {
		all = append(all, e.stream)
	}
	return all
}

func (st *stream) ledger(ranges bool) Ledger {
	st.mu.Lock()
	defer st.mu.Unlock()
	l := Ledger{
		Project: st.env.project, Environment: st.env.slug,
		Prefix: idPrefix(st.opts, st.env), Counts: st.counts,
	}
	l.Generated, l.InFlight = st.next, st.inFlight()
	if ranges {
		l.Acknowledged, l.Dropped = slices.Clone(st.acked), slices.Clone(st.dropped)
	}
	return l
}

// SetRate changes the rate of an environment, in events a second; with empty slugs, of
// each environment.
func (s *Simulator) SetRate(projectSlug, environmentSlug string, perSecond float64) error {
	if !isRate(perSecond) {
		return fmt.Errorf("set rate: %v is not in 0 to %d", perSecond, maxRate)
	}
	if projectSlug == "" && environmentSlug == "" {
		for _, st := range s.allStreams() {
			st.setRate(perSecond)
		}
		return nil
	}
	e, err := s.find(projectSlug, environmentSlug)
	if err != nil {
		return err
	}
	e.stream.setRate(perSecond)
	return nil
}

// Pause stops the generation of events: after its return, Generated does not grow. Events
// generated before are still pushed.
func (s *Simulator) Pause() { s.setPaused(true) }

// Resume ends a Pause.
func (s *Simulator) Resume() { s.setPaused(false) }

func (s *Simulator) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, e := range s.environments() {
		e.stream.setPaused(paused)
	}
}

func (st *stream) setPaused(paused bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.paused = paused
}

// Wait returns once no event is in flight, or with ctx's error. Call Pause first, or this
// may never happen.
func (s *Simulator) Wait(ctx context.Context) error {
	for _, st := range s.allStreams() {
		if err := st.wait(ctx); err != nil {
			return fmt.Errorf("wait for events in flight: %w", err)
		}
	}
	return nil
}

func (st *stream) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, st.broadcast)()
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.inFlight() > 0 && ctx.Err() == nil {
		st.moved.Wait()
	}
	if st.inFlight() == 0 {
		return nil
	}
	return ctx.Err()
}
