package lease

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// player is one relay.
type player struct {
	w       *world
	name    string
	m       *Machine
	clock   time.Duration // its monotonic time
	rate    float64
	at      time.Duration // when its clock was read last
	paused  time.Duration // until then
	cutIn   time.Duration // it hears nothing until then
	cutOut  time.Duration // nothing that it says arrives until then
	dead    bool
	holds   map[string]Epoch
	putting map[string]bool
}

// read returns the relay's clock, which stands still while it is paused.
func (p *player) read() time.Duration {
	if p.paused <= p.at { // it was not paused since it was read
		p.clock += time.Duration(float64(p.w.now-p.at) * p.rate)
	} else if p.w.now > p.paused {
		p.clock += time.Duration(float64(p.w.now-p.paused) * p.rate)
	}
	p.at = p.w.now
	return p.clock
}

// tick asks the machine, and does what it says.
func (p *player) tick() {
	if p.dead {
		return
	}
	if p.w.now < p.paused {
		p.w.after(p.paused-p.w.now, p.tick)
		return
	}
	now := p.read()
	d := p.m.Decide(now)
	p.holds = d.Hold
	if p.m.Dead() {
		p.dead = true
		p.w.add(p.name+"'", p.m.jobs)
		return
	}
	if d.Beat {
		p.beat(now)
	}
	for _, job := range d.Look {
		var e Epoch
		p.send(func() { e = p.w.epochs[job] }, func() {
			p.m.FoundEpoch(p.read(), now, job, e)
		})
	}
	for _, relay := range slices.Sorted(maps.Keys(d.Declare)) {
		b := d.Declare[relay]
		var got Beat
		p.send(func() { got, _ = p.w.putBeat(relay, b.Rev, Beat{Dead: true}) }, func() { p.m.FoundBeat(p.read(), now, relay, got) })
	}
	for _, job := range p.m.jobs {
		if e, take := d.Take[job]; take && !p.putting[job] {
			p.put(job, e, Epoch{Number: e.Number + 1, Holder: p.name})
		}
		if to, release := d.Release[job]; release && !p.putting[job] {
			e := p.m.Epoch(job)
			if !p.m.leaves && slices.Contains(p.w.sticky, job) {
				p.w.wrong = append(p.w.wrong, fmt.Sprintf("%s: %s gives %s away, which is sticky", p.w.now, p.name, job))
			}
			p.put(job, e, Epoch{Number: e.Number, For: to})
		}
		if e, held := d.Hold[job]; held {
			p.send(func() { p.w.write(p, job, e) }, func() {})
		}
	}
	p.w.noteOverlap(p)
	p.w.after(step+p.w.upTo(step/4), p.tick)
}

func (p *player) beat(now time.Duration) {
	var got Beat
	var written bool
	asked, known, leaves := now, p.m.Known().Rev, p.m.Leaves()
	p.send(func() { got, written = p.w.putBeat(p.name, known, Beat{Leaves: leaves}) }, func() {
		if !written {
			p.m.FoundBeat(p.read(), asked, p.name, got)
			return
		}
		p.m.WroteBeat(p.read(), now, asked, got)
	})
}

// put replaces a job's epoch, if it is still the one that the relay knows.
func (p *player) put(job string, e, next Epoch) {
	p.putting[job] = true
	asked := p.read()
	var got Epoch
	written := false
	p.send(func() { got, written = p.w.putEpoch(job, e.Rev, next) }, func() {
		if written {
			p.m.WroteEpoch(p.read(), asked, job, got)
		} else {
			p.m.FoundEpoch(p.read(), asked, job, got)
		}
	})
	p.w.after(time.Second, func() { p.putting[job] = false })
}

// send has the table do something, and the relay hear of it; both may be late, lost, or happen twice.
func (p *player) send(arrive, answer func()) {
	w := p.w
	times := 1
	if w.faults && w.r.IntN(20) == 0 {
		times = w.r.IntN(3)
	}
	for range times {
		w.after(w.delay(), func() {
			if w.now < p.cutOut {
				return
			}
			arrive()
			w.after(w.delay(), func() {
				if !p.dead && w.now >= p.cutIn && w.now >= p.paused {
					answer()
				}
			})
		})
	}
}
