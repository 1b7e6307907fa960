package app

import (
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/relay"
)

// Of several relays on a cluster each takes pushes, and each knows what the others took: it reads
// that from the journal, which has every acknowledged event and nothing else. So an environment is
// not called silent as its pushes go to another relay, and a repeated push is recognised wherever
// it comes. Refused pushes are known only where they were refused.

// othersTook notes events that another relay has taken. epoch is that of the recent events from
// before they were read.
func (r *process) othersTook(events []relay.Event, epoch uint64) {
	if r.recent != nil {
		keys := make([]ingest.EventKey, len(events))
		for i := range events {
			keys[i] = r.recent.Key(events[i].Source, []byte(events[i].ID), events[i].Body)
		}
		r.recent.Add(keys, epoch)
	}
	for env, run := range pushedIn(events) {
		if r.applied.Load().environments[env] {
			r.arrivals.Of(env).OtherTook(pushOf(run))
		}
	}
}

// pushedIn gives the runs of pushed events, which are no entries of the trail, with the environment of each.
func pushedIn(events []relay.Event) func(yield func(credentials.Environment, []relay.Event) bool) {
	return func(yield func(credentials.Environment, []relay.Event) bool) {
		for first := 0; first < len(events); {
			e := &events[first]
			next := first + 1
			for next < len(events) && events[next].Source == e.Source {
				next++
			}
			env := credentials.Environment{Project: e.Project, Environment: e.Environment}
			if !e.OfTrail() && !yield(env, events[first:next]) {
				return
			}
			first = next
		}
	}
}

// pushOf is what a book of arrivals is told of events of one environment.
func pushOf(events []relay.Event) received.Push {
	p := received.Push{Events: int64(len(events)), Lateness: &received.Lateness{}}
	for i := range events {
		e := &events[i]
		p.Bytes += int64(len(e.Body))
		p.Newest = max(p.Newest, e.Time.UnixNano())
		p.Lateness.Add(e.Received.Sub(e.Time))
	}
	return p
}

// lastPushes are the last pushes that earlier processes took, as far as they were read back.
type lastPushes struct {
	mu   sync.Mutex
	at   map[credentials.Environment]time.Time    // guarded by mu
	told func(credentials.Environment, time.Time) // nil before somebody wants to know; guarded by mu
}

// note takes the events of a record of the journal.
func (l *lastPushes) note(record []relay.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for env, run := range pushedIn(record) {
		received := run[0].Received
		if received.After(l.at[env]) {
			l.at[env] = received
		}
		if l.told != nil {
			l.told(env, received)
		}
	}
}

// tell has a function told of them, and of those that are still to be read.
func (l *lastPushes) tell(told func(credentials.Environment, time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = told
	for env, at := range l.at {
		told(env, at)
	}
}
