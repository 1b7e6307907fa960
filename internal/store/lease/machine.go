package lease

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Timing says how fast a cluster notices that a relay is gone. All of it is counted by each
// relay's own monotonic clock.
type Timing struct {
	// Beat is the time between two heartbeats of a relay.
	Beat time.Duration
	// Dead is how long a heartbeat stays unchanged before others declare its relay dead.
	Dead time.Duration
	// Hold is how long a relay goes on with its jobs after the begin of its last heartbeat that
	// reached the table. It is less than Dead: a relay that is declared dead has stopped by
	// itself, as far as clocks run at one speed. The store refuses a write under an earlier epoch
	// in any case, but no destination outside of it does. With 0 it goes on until it hears that
	// it was declared dead.
	Hold time.Duration
}

// DefaultTiming moves the jobs of a dead relay within five seconds.
var DefaultTiming = Timing{Beat: time.Second, Dead: 4 * time.Second, Hold: 3 * time.Second}

// Epoch is the newest value of a job's epoch.
type Epoch struct {
	// Rev is its revision in the table. Everything that the holder writes for the job is
	// conditional on it. 0 means that the job never had a holder.
	Rev uint64
	// Number counts the holders that the job has had.
	Number uint64
	// Holder is the relay that has the job; empty after it was released.
	Holder string
	// For is the relay that the job was released for: others leave it alone as long as that one lives.
	For string
}

// Beat is the newest heartbeat of a relay. Each one replaces the one before, under the
// condition that nobody else has: so a relay that was declared dead learns it.
type Beat struct {
	// Rev is its revision in the table.
	Rev uint64
	// Dead means that the relay has left, or was declared dead. It never comes back under that name.
	Dead bool
}

// Machine decides what one relay does about the jobs. It is told what stands in the table,
// and has neither a clock nor a connection: times are what the caller's monotonic clock says.
// It is not safe for concurrent use.
type Machine struct {
	self   string
	was    string
	jobs   []string
	timing Timing

	epochs map[string]Epoch
	beats  map[string]seenBeat // by relay
	began  time.Duration       // when the newest heartbeat was begun
	heard  time.Duration       // when the newest one was begun that has reached the table
	steady time.Duration       // since when they reach it without a longer break
	gives  map[string]release  // jobs that are given away: under that epoch they are never done again
	moved  time.Duration       // when a job was given away last
	joined bool                // a heartbeat has reached the table
	leaves bool
}

type release struct {
	rev uint64
	to  string
}

type seenBeat struct {
	Beat
	at time.Duration // when it was seen first
}

// NewMachine returns the machine of a relay that can do these jobs. The relay's name is new:
// no process before has had it. Was is the name of a process that is known to have ended, or
// empty.
func NewMachine(self, was string, jobs []string, t Timing) *Machine {
	return &Machine{
		self: self, was: was, jobs: slices.Sorted(slices.Values(jobs)), timing: t,
		epochs: map[string]Epoch{}, beats: map[string]seenBeat{}, gives: map[string]release{}, began: math.MinInt64 / 2,
	}
}

// SawEpoch takes a job's epoch, as it was read or written. What is older than what is known
// changes nothing. A holder without a heartbeat is watched from now on.
func (m *Machine) SawEpoch(now time.Duration, job string, e Epoch) {
	if e.Rev > m.epochs[job].Rev {
		m.epochs[job] = e
	}
	if _, known := m.beats[e.Holder]; e.Holder != "" && !known {
		m.beats[e.Holder] = seenBeat{at: now}
	}
}

// SawBeat takes a relay's heartbeat, as it was read or written.
func (m *Machine) SawBeat(now time.Duration, relay string, b Beat) {
	if known, seen := m.beats[relay]; !seen || b.Rev > known.Rev {
		m.beats[relay] = seenBeat{b, now}
	}
}

// Beaten notes that the heartbeat that was begun at a time has reached the table.
func (m *Machine) Beaten(begun time.Duration) {
	if !m.joined || begun-m.heard > 3*m.timing.Beat {
		m.steady = begun
	}
	m.heard, m.joined = max(m.heard, begun), true
}

// Leave has the machine give all its jobs away, and take none.
func (m *Machine) Leave() { m.leaves = true }

// Dead reports whether this relay was declared dead. Its machine does nothing any more; the
// relay may come back under another name.
func (m *Machine) Dead() bool { return m.beats[m.self].Dead }

// Decision is what a relay does next. Each write is conditional on the revision that stands there.
type Decision struct {
	// Beat is whether to write a heartbeat, in the place of the one that is known.
	Beat bool
	// Hold are the jobs to do. The relay stops all others at once.
	Hold map[string]Epoch
	// Take are jobs whose epoch is to be replaced by one that names this relay.
	Take map[string]Epoch
	// Release are jobs to stop, and to give away once they have stopped, each to a relay or,
	// where that is empty, to any.
	Release map[string]string
	// Declare are relays to declare dead.
	Declare map[string]Beat
}

// Known is the heartbeat of this relay that its next one replaces.
func (m *Machine) Known() Beat { return m.beats[m.self].Beat }

// Decide says what to do at a time.
func (m *Machine) Decide(now time.Duration) Decision {
	d := Decision{Hold: map[string]Epoch{}, Take: map[string]Epoch{}, Release: map[string]string{}, Declare: map[string]Beat{}}
	if m.Dead() {
		return d
	}
	if now-m.began >= m.timing.Beat {
		d.Beat, m.began = true, now
	}
	if !m.joined || m.timing.Hold > 0 && now-m.heard >= m.timing.Hold {
		return d // others may have declared it dead
	}
	share := m.share()
	for _, job := range m.jobs {
		e := m.epochs[job]
		switch {
		case e.Holder == m.self && m.gives[job].rev == e.Rev:
			d.Release[job] = m.gives[job].to // the answer is still to come, or was lost
		case e.Holder == m.self && m.leaves:
			m.give(d, job, "")
		case e.Holder == m.self:
			d.Hold[job] = e
		case !m.leaves && m.free(e) && (e.For == m.self || share[m.self] < m.most(share)):
			d.Take[job] = e
			share[m.self]++
		}
	}
	m.balance(now, share, d)
	m.declare(now, d)
	return d
}

// declare names the relays whose heartbeat did not change for too long, while this relay's own
// ones reached the table: while the table elects its leader, nobody's does.
func (m *Machine) declare(now time.Duration, d Decision) {
	for relay, b := range m.beats {
		if relay == m.self || b.Dead {
			continue
		}
		if relay == m.was || now-max(b.at, m.steady) >= m.timing.Dead {
			d.Declare[relay] = b.Beat
		}
	}
}

// balance gives a job away where another relay has two fewer. Of the relays that have the
// most, the last by name does, and one job moves at a time.
func (m *Machine) balance(now time.Duration, share map[string]int, d Decision) {
	if m.leaves || len(d.Take)+len(d.Release) > 0 || now-m.moved < m.timing.Beat {
		return
	}
	names := slices.SortedFunc(maps.Keys(share), func(a, b string) int { return cmp.Or(share[a]-share[b], cmp.Compare(a, b)) })
	least, most := names[0], names[len(names)-1]
	if most != m.self || share[most]-share[least] < 2 {
		return
	}
	for _, job := range slices.Backward(m.jobs) {
		if _, held := d.Hold[job]; held {
			delete(d.Hold, job)
			m.give(d, job, least)
			m.moved = now
			return
		}
	}
}

func (m *Machine) give(d Decision, job, to string) {
	m.gives[job] = release{m.epochs[job].Rev, to}
	d.Release[job] = to
}

// share counts the jobs of each living relay, and those that were released for it.
func (m *Machine) share() map[string]int {
	all := map[string]int{m.self: 0}
	for relay, b := range m.beats {
		if !b.Dead {
			all[relay] = 0
		}
	}
	for _, job := range m.jobs {
		by := m.epochs[job].Holder
		if e := m.epochs[job]; by == "" && e.For != m.self { // this relay counts it as it takes it
			by = e.For
		}
		if _, living := all[by]; living {
			all[by]++
		}
	}
	return all
}

// most is how many jobs a relay takes: the share of each, rounded up.
func (m *Machine) most(share map[string]int) int { return (len(m.jobs) + len(share) - 1) / len(share) }

// free reports whether a job may be taken: it has no holder, or a dead one.
func (m *Machine) free(e Epoch) bool {
	if e.Holder != "" {
		return m.beats[e.Holder].Dead
	}
	b, known := m.beats[e.For]
	return e.For == m.self || !known || b.Dead
}

// holds reports whether an epoch names this relay.
func (m *Machine) holds() bool {
	for _, e := range m.epochs {
		if e.Holder == m.self {
			return true
		}
	}
	return false
}
