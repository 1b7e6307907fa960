// Package ages tells how long records have been kept, whatever the wall clock does.
package ages

import (
	"sync"
	"time"
)

// Ages notes the stream's end at moments of the monotonic clock. A restart loses these
// notes; the records' stamps then take their place: see [Prefix].
type Ages struct {
	mu   sync.Mutex
	seen []sighting // oldest first; guarded by mu
	// begun is the first sighting, at the journal's opening. It stays when seen is cut.
	begun sighting // set once, before the loops start
}

// sighting is the stream's last record at some moment.
type sighting struct {
	last uint64
	at   Moment
}

// Moment is a point in time by both clocks. The wall clock jumps when somebody sets it;
// the monotonic clock never does.
type Moment struct {
	Wall time.Time     // without a monotonic reading
	Up   time.Duration // by the monotonic clock, since any fixed point in the process
}

var processStart = time.Now()

// Now is the present moment.
func Now() Moment {
	now := time.Now()
	return Moment{now.Round(0), now.Sub(processStart)}
}

// maxSightings bounds the memory for them. The further apart, the less exact.
const maxSightings = 4096

// Begin notes the stream's end before the process appends.
func (a *Ages) Begin(last uint64, now Moment) {
	a.begun = sighting{last, now}
	a.seen = append(a.seen[:0], a.begun)
}

// Inherited is the newest record of an earlier process.
func (a *Ages) Inherited() uint64 { return a.begun.last }

// Steady is the earlier of two times: the wall clock's, and the start's plus the time
// since on the monotonic clock. So a jump ahead does not count.
func (a *Ages) Steady(now Moment) time.Time {
	steady := a.begun.at.Wall.Add(now.Up - a.begun.at.Up)
	if now.Wall.Before(steady) {
		return now.Wall
	}
	return steady
}

// See notes the stream's last record now.
func (a *Ages) See(last uint64, now Moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) == maxSightings {
		for i := range maxSightings / 2 { // every second one stays
			a.seen[i] = a.seen[2*i+1]
		}
		a.seen = a.seen[:maxSightings/2]
	}
	a.seen = append(a.seen, sighting{last, now})
}

// OlderThan is the newest record that was certainly kept for longer than the window,
// or 0. It drops the sightings before it.
func (a *Ages) OlderThan(window time.Duration, now Moment) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.seen) && now.Up-a.seen[n].at.Up >= window {
		n++
	}
	if n == 0 {
		return 0
	}
	a.seen = append(a.seen[:0], a.seen[n-1:]...)
	return a.seen[0].last
}

// Prefix finds the first record to keep, where those go whose commit certainly was before
// a time. Its records come in the order of their commit:
//
//   - A stamp in the future comes from a clock set ahead, and says nothing. The
//     record is at least as old as an old one behind it.
//   - A young stamp ends the prefix. An older stamp behind it contradicts it, and
//     either may be wrong.
type Prefix struct {
	Keep        uint64 // the first record to keep, so far
	Before, Now time.Time
}

// Add takes the next record's stamp, and reports whether the prefix goes on.
func (p *Prefix) Add(record uint64, stamp time.Time) (more bool) {
	switch {
	case stamp.After(p.Now):
	case stamp.Before(p.Before):
		p.Keep = record + 1
	default:
		return false
	}
	return true
}
