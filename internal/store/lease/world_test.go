package lease

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
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
func (w *world) putBeat(relay string, rev uint64, b Beat) (Beat, bool) {
	if w.beats[relay].Rev != rev {
		return w.beats[relay], false
	}
	w.rev++
	b.Rev, b.Jobs = w.rev, w.can[relay]
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
