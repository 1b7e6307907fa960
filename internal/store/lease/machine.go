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

// DefaultTiming moves the jobs of a dead relay within five seconds: a heartbeat is seen a moment
// after it was written, and what follows its end takes some writes.
var DefaultTiming = Timing{Beat: 750 * time.Millisecond, Dead: 3500 * time.Millisecond, Hold: 2500 * time.Millisecond}

// Epoch is the newest value of a job's epoch, in the form in which it stands in the table.
type Epoch struct {
	// Rev is its revision in the table. Everything that the holder writes for the job is
	// conditional on it. 0 means that the job never had a holder.
	Rev uint64 `json:"-"`
	// Number counts the holders that the job has had.
	Number uint64 `json:"number"`
	// Holder is the relay that has the job; empty after it was released.
	Holder string `json:"holder,omitempty"`
	// For is the relay that the job was released for: others leave it alone as long as that one lives.
	For string `json:"for,omitempty"`
	// Since is when it was written, by its writer's clock: for people, and for no decision.
	Since time.Time `json:"since"`
}

// Beat is the newest heartbeat of a relay, in the form in which it stands in the table. Each one
// replaces the one before, under the condition that nobody else has: so a relay that was declared
// dead learns it.
type Beat struct {
	// Rev is its revision in the table.
	Rev uint64 `json:"-"`
	// Dead means that the relay has left, or was declared dead. It never comes back under that name.
	Dead bool `json:"-"`
	// Jobs are those that the relay can do. Relays with different configurations differ in them.
	Jobs []string `json:"jobs"`
	// At is when it was written, by the relay's clock: for people, and for no decision.
	At time.Time `json:"at"`
	// Leaves means that the relay gives its jobs away, and is given none.
	Leaves bool `json:"leaves,omitempty"`
	// Says is what the relay tells the others: see [Options.Says].
	Says string `json:"says,omitempty"`
}

// Machine decides what one relay does about the jobs. It is told what stands in the table,
// and has neither a clock nor a connection: times are what the caller's monotonic clock says.
// It is not safe for concurrent use.
type Machine struct {
	self   string
	was    string
	jobs   []string
	sticky []string
	timing Timing

	epochs map[string]seenEpoch
	beats  map[string]seenBeat // by relay
	began  time.Duration       // when the newest heartbeat was begun
	heard  time.Duration       // when the newest one was begun that has reached the table
	steady time.Duration       // since when they reach it without a longer break
	lost   map[string]Epoch    // of jobs that this relay has: an earlier epoch, which stands in the table instead
	looked int                 // counts the heartbeats: at each, one epoch is read again
	unsure map[string]bool     // jobs whose epoch may have gone back
	gives  map[string]release  // jobs that are given away: under that epoch they are never done again
	moved  time.Duration       // when a job was given away last
	joined bool                // a heartbeat has reached the table
	leaves bool
}

type seenEpoch struct {
	Epoch
	at time.Duration // when it was seen first
}

type release struct {
	rev uint64
	to  string
}

type seenBeat struct {
	Beat
	at time.Duration // when it was seen first
}

// NewMachine returns the machine of a relay that can do these jobs. Those that are sticky stay
// with their holder for as long as it lives: they count in its share, and are never moved for
// balance. The relay's name is new: no process before has had it. Was is the name of a process
// that is known to have ended, or empty.
func NewMachine(self, was string, jobs, sticky []string, t Timing) *Machine {
	return &Machine{
		self: self, was: was, jobs: slices.Sorted(slices.Values(jobs)), sticky: sticky, timing: t,
		epochs: map[string]seenEpoch{}, beats: map[string]seenBeat{}, gives: map[string]release{}, lost: map[string]Epoch{}, unsure: map[string]bool{}, began: math.MinInt64 / 2,
	}
}

// SawEpoch takes a job's epoch, as it was read or written. What is older than what is known
// changes nothing. A holder without a heartbeat is watched from now on.
func (m *Machine) SawEpoch(now time.Duration, job string, e Epoch) {
	if e.Rev > m.epochs[job].Rev {
		m.epochs[job] = seenEpoch{e, now}
		delete(m.lost, job)
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

// FoundEpoch takes a job's epoch as the table's leader has answered a question that was put at
// the time asked. It may be older than one that was seen before it was asked: then the table has
// lost its end. If it was this relay's epoch that was lost, the relay goes on, and writes it again.
func (m *Machine) FoundEpoch(now, asked time.Duration, job string, e Epoch) {
	known := m.epochs[job]
	if e.Rev < known.Rev && asked <= known.at {
		return // it was written after the answer
	}
	delete(m.unsure, job)
	if e.Rev < known.Rev && known.Holder == m.self && m.gives[job].rev != known.Rev {
		m.lost[job] = e
		return
	}
	if e.Rev != known.Rev {
		m.WroteEpoch(now, asked, job, e)
	}
}

// WroteEpoch takes an epoch that this relay has written, with a write that was begun at the time
// asked.
func (m *Machine) WroteEpoch(now, asked time.Duration, job string, e Epoch) {
	if known := m.epochs[job]; e.Rev < known.Rev && asked <= known.at {
		return
	}
	delete(m.epochs, job)
	delete(m.lost, job)
	m.SawEpoch(now, job, e)
}

// WroteBeat takes a heartbeat of this relay that it has begun and written.
func (m *Machine) WroteBeat(now, begun, asked time.Duration, b Beat) {
	if known := m.beats[m.self]; b.Rev > known.Rev || asked > known.at {
		m.beats[m.self] = seenBeat{b, now}
	}
	if !m.joined || begun-m.heard > 3*m.timing.Beat {
		m.steady = begun
	}
	m.heard, m.joined = max(m.heard, begun), true
}

// FoundBeat is FoundEpoch for a heartbeat. If this relay's own has gone back, all epochs may
// have, and are to be looked at.
func (m *Machine) FoundBeat(now, asked time.Duration, relay string, b Beat) {
	known := m.beats[relay]
	if b.Rev == known.Rev || b.Rev < known.Rev && asked <= known.at {
		return
	}
	if relay == m.self && b.Rev < m.beats[relay].Rev {
		for _, job := range m.known() {
			m.unsure[job] = true
		}
	}
	delete(m.beats, relay)
	m.SawBeat(now, relay, b)
}

// Epoch is the newest known epoch of a job.
func (m *Machine) Epoch(job string) Epoch { return m.epochs[job].Epoch }

// Leave has the machine give all its jobs away, and take none. Its next heartbeat says so.
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
	// Take are jobs whose epoch is to be replaced by one that names this relay. One of a job that
	// the relay has already was lost by the table.
	Take map[string]Epoch
	// Release are jobs to stop, and to give away once they have stopped, each to a relay or,
	// where that is empty, to any.
	Release map[string]string
	// Look are jobs whose epoch is to be read from the table's leader.
	Look []string
	// Declare are relays to declare dead.
	Declare map[string]Beat
}

// Leaves reports whether the machine gives all its jobs away.
func (m *Machine) Leaves() bool { return m.leaves }

// Known is the heartbeat of this relay that its next one replaces.
func (m *Machine) Known() Beat { return m.beats[m.self].Beat }

// Decide says what to do at a time.
func (m *Machine) Decide(now time.Duration) Decision {
	d := Decision{Hold: map[string]Epoch{}, Take: map[string]Epoch{}, Release: map[string]string{}, Declare: map[string]Beat{}}
	if m.Dead() {
		return d
	}
	// The others hear at once that it leaves: they count on a relay with few jobs to take more.
	d.Beat = m.leaves && m.joined && !m.beats[m.self].Leaves
	if len(m.jobs) > 0 && now-m.began >= m.timing.Beat {
		d.Beat, m.began = true, now
		m.looked++
		known := m.known()
		m.unsure[known[m.looked%len(known)]] = true // what was lost shows in no heartbeat if none was
	}
	d.Look = slices.Sorted(maps.Keys(m.unsure))
	if !m.joined || m.timing.Hold > 0 && now-m.heard >= m.timing.Hold {
		return d // others may have declared it dead
	}
	share := m.share()
	// A relay that was frozen may have been declared dead, and sees of others first that they were.
	mayTake := !m.leaves && now-m.heard < m.timing.Dead
	for _, job := range m.jobs {
		e := m.epochs[job]
		switch {
		case e.Holder == m.self && m.gives[job].rev == e.Rev:
			d.Release[job] = m.gives[job].to // the answer is still to come, or was lost
		case e.Holder == m.self && m.leaves:
			m.give(d, job, "")
		case e.Holder == m.self:
			d.Hold[job] = e.Epoch
			if earlier, lost := m.lost[job]; lost {
				d.Take[job] = Epoch{Rev: earlier.Rev, Number: max(earlier.Number, e.Number)}
			}
		case mayTake && m.free(e.Epoch) && (e.For == m.self || share[m.self] < m.most(share) || m.isNext(job, share)):
			d.Take[job] = e.Epoch
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

// balance gives a job away where another relay has two fewer, and can do it. Of the relays that
// could give one, that with the most does, the last one by name, and one job moves at a time.
func (m *Machine) balance(now time.Duration, share map[string]int, d Decision) {
	if m.leaves || len(d.Take)+len(d.Release) > 0 || now-m.moved < m.timing.Beat {
		return
	}
	for _, relay := range slices.SortedFunc(maps.Keys(share), func(a, b string) int { return cmp.Or(share[b]-share[a], cmp.Compare(b, a)) }) {
		job, to := m.gift(relay, share)
		switch {
		case job == "":
			continue
		case relay == m.self:
			delete(d.Hold, job)
			m.give(d, job, to)
			m.moved = now
		}
		return
	}
}

// gift is a job of a relay that evens the shares out when another one has it; empty if there is none.
func (m *Machine) gift(relay string, share map[string]int) (job, to string) {
	for _, job := range slices.Backward(m.known()) {
		if m.epochs[job].Holder != relay || slices.Contains(m.sticky, job) {
			continue
		}
		to := relay
		for other, n := range share {
			if m.isAble(other, job) && (n < share[to] || n == share[to] && other < to) {
				to = other
			}
		}
		if share[relay]-share[to] >= 2 {
			return job, to
		}
	}
	return "", ""
}

// known are the jobs of this relay, and those of others that it has heard of, sorted.
func (m *Machine) known() []string {
	all := slices.AppendSeq(slices.Clone(m.jobs), maps.Keys(m.epochs))
	slices.Sort(all)
	return slices.Compact(all)
}

// isAble reports whether a relay can do a job.
func (m *Machine) isAble(relay, job string) bool {
	if relay == m.self {
		return slices.Contains(m.jobs, job)
	}
	return slices.Contains(m.beats[relay].Jobs, job)
}

// isNext reports whether no relay that can do a job has fewer than this one.
func (m *Machine) isNext(job string, share map[string]int) bool {
	for relay, n := range share {
		if n < share[m.self] && m.isAble(relay, job) {
			return false
		}
	}
	return true
}

func (m *Machine) give(d Decision, job, to string) {
	m.gives[job] = release{m.epochs[job].Rev, to}
	d.Release[job] = to
}

// share counts the jobs of each living relay that stays, and those that were released for it, also
// jobs that this relay cannot do.
func (m *Machine) share() map[string]int {
	all := map[string]int{m.self: 0}
	for relay, b := range m.beats {
		if !b.Dead && !b.Leaves {
			all[relay] = 0
		}
	}
	for _, e := range m.epochs {
		by := e.Holder
		if by == "" && e.For != m.self { // this relay counts it as it takes it
			by = e.For
		}
		if _, living := all[by]; living {
			all[by]++
		}
	}
	return all
}

// most is how many jobs a relay takes at once: the share of each, rounded up.
func (m *Machine) most(share map[string]int) int { return (len(m.jobs) + len(share) - 1) / len(share) }

// free reports whether a job may be taken: it has no holder, or a dead one, and is not released for
// a relay that stays.
func (m *Machine) free(e Epoch) bool {
	if e.Holder != "" {
		return m.beats[e.Holder].Dead
	}
	b, known := m.beats[e.For]
	return e.For == m.self || !known || b.Dead || b.Leaves
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
