package lease

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneHolderWrites plays relays, their table and a bad network in simulated time: delays,
// lost and doubled answers, cuts in one direction, suspended and slow clocks, kills. Nobody
// writes under another one's epoch, and once the faults end, each job is done by one relay,
// evenly spread, and nothing moves any more.
func TestOneHolderWrites(t *testing.T) {
	t.Parallel()
	seeds := 1000
	if testing.Short() {
		seeds = 200
	}
	if n, err := strconv.Atoi(os.Getenv("AUDITRELAY_SEEDS")); err == nil {
		seeds = n
	}
	for part := range 4 {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < seeds; seed += 4 {
				w := newWorld(uint64(seed))
				w.run(faultsEnd)
				w.heal()
				w.run(faultsEnd + recovery)
				require.Empty(t, w.wrong, "seed %d", seed)
				require.NoError(t, w.settled(), "seed %d", seed)
				moves := w.moves
				w.run(faultsEnd + recovery + quiet)
				require.NoError(t, w.settled(), "seed %d", seed)
				require.Equal(t, moves, w.moves, "seed %d: jobs move although nothing happens", seed)
			}
		})
	}
}

const (
	faultsEnd = 60 * time.Second
	recovery  = 20 * time.Second
	quiet     = 30 * time.Second
	step      = 200 * time.Millisecond
)

// world is a table, and the relays that use it. Its time is the true one.
type world struct {
	r         *rand.Rand
	now       time.Duration
	events    events
	count     int
	faults    bool
	pauses    bool // clocks may stop: then overlaps are possible
	rev       uint64
	losses    bool // the table goes back at times: then overlaps are possible, too
	epochs    map[string]Epoch
	oldEpochs map[string]Epoch
	oldBeats  map[string]Beat
	beats     map[string]Beat
	writers   map[uint64]string // who wrote under a revision
	sticky    []string
	can       map[string][]string // the jobs of each relay
	relays    []*player
	moves     int
	wrong     []string
}

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

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func jobs(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("job-%02d", i))
	}
	return all
}

func newWorld(seed uint64) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 22)), faults: true, epochs: map[string]Epoch{}, beats: map[string]Beat{},
		writers: map[uint64]string{}, can: map[string][]string{},
	}
	w.pauses, w.losses = w.r.IntN(2) == 0, w.r.IntN(3) == 0
	work := jobs(1 + w.r.IntN(9))
	w.sticky = work[:w.r.IntN(min(3, len(work)+1))]
	differ := w.r.IntN(4) == 0
	for i := range 1 + w.r.IntN(4) {
		can := work
		if differ && i > 0 { // it has an older configuration
			can = slices.DeleteFunc(slices.Clone(work), func(string) bool { return w.r.IntN(3) == 0 })
		}
		w.add(fmt.Sprintf("relay-%d", i), can)
	}
	w.after(0, w.strike)
	return w
}

func (w *world) add(name string, work []string) *player {
	p := &player{w: w, name: name, m: NewMachine(name, "", work, w.sticky, DefaultTiming), rate: 0.95 + 0.1*w.r.Float64(), holds: map[string]Epoch{}, putting: map[string]bool{}, at: w.now}
	w.relays, w.can[name] = append(w.relays, p), work
	w.after(w.upTo(step), p.tick)
	w.after(w.upTo(step), func() { // its watch begins with what stands in the table
		for job, e := range w.epochs {
			p.m.SawEpoch(p.read(), job, e)
		}
		for relay, b := range w.beats {
			p.m.SawBeat(p.read(), relay, b)
		}
	})
	return p
}

func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{w.now + d, w.count, do})
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// strike does something bad to a relay, again and again.
func (w *world) strike() {
	if !w.faults {
		return
	}
	p := w.relays[w.r.IntN(len(w.relays))]
	until := w.now + w.upTo(15*time.Second)
	switch w.r.IntN(7) {
	case 6:
		w.goBack()
	case 0:
		p.cutIn = until
	case 1:
		p.cutOut = until
	case 2:
		p.cutIn, p.cutOut = until, until
	case 3:
		if w.pauses {
			p.read()
			p.paused = until
		}
	case 4:
		if !p.dead { // another process comes in its place
			p.dead = true
			w.after(w.upTo(10*time.Second), func() { w.add(fmt.Sprintf("%s+", p.name), p.m.jobs) })
		}
	case 5:
		p.m.Leave()
		w.after(2*time.Second, func() {
			if !p.dead {
				p.dead = true
				w.add(fmt.Sprintf("%s+", p.name), p.m.jobs)
			}
		})
	}
	w.after(w.upTo(6*time.Second), w.strike)
}

// goBack has the table lose the last seconds. Its revisions are not given out again.
func (w *world) goBack() {
	if w.oldEpochs != nil && w.losses {
		w.epochs, w.beats = w.oldEpochs, w.oldBeats
		w.oldEpochs = nil
		return
	}
	w.oldEpochs, w.oldBeats = maps.Clone(w.epochs), maps.Clone(w.beats)
}

func (w *world) heal() {
	w.faults = false
	for _, p := range w.relays {
		p.read()
		p.cutIn, p.cutOut, p.paused = 0, 0, 0
	}
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
		p.send(func() { got, _ = p.w.putBeat(relay, b.Rev, true) }, func() { p.m.FoundBeat(p.read(), now, relay, got) })
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
	asked, known := now, p.m.Known().Rev
	p.send(func() { got, written = p.w.putBeat(p.name, known, false) }, func() {
		if !written {
			p.m.FoundBeat(p.read(), asked, p.name, got)
			return
		}
		p.m.WroteBeat(p.read(), asked, got)
		p.m.Beaten(now)
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

func (w *world) delay() time.Duration {
	if w.faults && w.r.IntN(10) == 0 {
		return w.upTo(5 * time.Second)
	}
	return w.upTo(20 * time.Millisecond)
}

// tell passes a change on to all who watch the table. Who is cut off hears it later.
func (w *world) tell(say func(p *player)) {
	for _, p := range w.relays {
		var hear func()
		hear = func() {
			switch until := max(p.cutIn, p.paused); {
			case p.dead:
			case w.now < until:
				w.after(until-w.now, hear)
			default:
				say(p)
			}
		}
		w.after(w.delay(), hear)
	}
}

// putBeat returns what stands in the table then, and whether it is what was put.
func (w *world) putBeat(relay string, rev uint64, dead bool) (Beat, bool) {
	if w.beats[relay].Rev != rev {
		return w.beats[relay], false
	}
	w.rev++
	b := Beat{Rev: w.rev, Dead: dead, Jobs: w.can[relay]}
	w.beats[relay] = b
	w.tell(func(p *player) { p.m.SawBeat(p.read(), relay, b) })
	return b, true
}

// putEpoch returns what stands in the table then, and whether it is what was put.
func (w *world) putEpoch(job string, rev uint64, next Epoch) (Epoch, bool) {
	if w.epochs[job].Rev != rev {
		return w.epochs[job], false
	}
	w.rev++
	w.moves++
	next.Rev = w.rev
	w.epochs[job] = next
	w.tell(func(p *player) { p.m.SawEpoch(p.read(), job, next) })
	return next, true
}

// write is a holder's, under its epoch.
func (w *world) write(p *player, job string, e Epoch) {
	if w.epochs[job].Rev != e.Rev {
		return // refused
	}
	if by, written := w.writers[e.Rev]; written && by != p.name || w.epochs[job].Holder != p.name {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s wrote %s under the epoch of %s", w.now, p.name, job, w.epochs[job].Holder))
	}
	w.writers[e.Rev] = p.name
}

// noteOverlap looks for two relays that do one job at a time, as clocks that go on allow none.
func (w *world) noteOverlap(p *player) {
	for job := range p.holds {
		for _, q := range w.relays {
			if _, too := q.holds[job]; too && q != p && !q.dead && !w.pauses && !w.losses {
				w.wrong = append(w.wrong, fmt.Sprintf("%s: %s and %s both do %s", w.now, p.name, q.name, job))
			}
		}
	}
}

// settled returns an error unless each job that some relay can do is done by one, and no relay
// could take one from another that has two more.
func (w *world) settled() error {
	var living []*player
	for _, p := range w.relays {
		if !p.dead && !p.m.leaves {
			living = append(living, p)
		}
	}
	for _, p := range living {
		for _, job := range p.m.jobs {
			e := w.epochs[job]
			i := slices.IndexFunc(living, func(p *player) bool { return p.name == e.Holder })
			if i < 0 || living[i].holds[job].Rev != e.Rev {
				return fmt.Errorf("nobody does %s, whose epoch is %+v", job, e)
			}
			if has := living[i]; len(has.holds) >= len(p.holds)+2 && !slices.Contains(w.sticky, job) {
				return fmt.Errorf("%s has %d jobs, and %s, which could do %s of them, has %d", has.name, len(has.holds), p.name, job, len(p.holds))
			}
		}
	}
	return nil
}
