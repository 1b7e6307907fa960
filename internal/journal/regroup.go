package journal

import (
	"runtime"
	"time"
)

const (
	// longestReturn bounds how long a commit waits for senders to return.
	longestReturn = 5 * time.Millisecond
	// After a wait in vain, the next groups do not wait: 2, then 4, then 8 of them.
	mostMisses = 3
)

// returning predicts the next appends: they come from the senders released by the last
// commit.
//
// A sender awaits the answer to one push before it sends the next. So the senders of a
// commit return together, shortly after its end. An earlier commit leaves them out, and
// from then on two parts of the senders take turns: twice the commits for the same events.
// With a wait, a commit holds all senders again.
type returning struct {
	queued  int       // segments ever queued
	awaited int       // queued, once the senders are back
	until   time.Time // nobody waits for them beyond this
	misses  int       // waits in vain, in a row
	skip    int       // groups without a wait
}

// released notes the end of a commit of so many segments. Its senders have as long to
// return as it took, so a wait at most doubles the time of a commit.
func (r *returning) released(segments int, took time.Duration, now time.Time) {
	r.awaited, r.until = r.queued+segments, now.Add(min(took, longestReturn))
}

// wait is how long the next group should wait for the senders; 0 for not at all.
func (r *returning) wait(now time.Time) time.Duration {
	left := r.until.Sub(now)
	if r.queued >= r.awaited || left <= 0 {
		return 0
	}
	if r.skip > 0 {
		r.skip--
		return 0
	}
	return left
}

// waited notes how a wait ended. Senders pushing by a clock, not by answers, do not return:
// groups then stop waiting, except for one now and then.
func (r *returning) waited(returned bool) {
	if returned {
		r.misses = 0
		return
	}
	r.misses = min(r.misses+1, mostMisses)
	r.skip = 1 << r.misses
}

// regroup lets the queue grow before a group is taken. First it yields to runnable
// goroutines: some are about to append. With none, a yield costs nothing. Then it waits for
// the senders of the last commit. mu is held, but not throughout; nobody else takes from
// the queue.
func (c *committer) regroup() {
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	left := c.senders.wait(time.Now())
	if left == 0 || c.waiting >= recordTarget {
		return
	}
	late := false
	timer := time.AfterFunc(left, func() {
		c.mu.Lock()
		late = true
		c.mu.Unlock()
		c.changed.Signal()
	})
	defer timer.Stop()
	for !late && !c.closed && !c.gathered() {
		c.changed.Wait()
	}
	c.senders.waited(!late)
}

// gathered reports whether the wait for the senders of the last commit is over. mu is held.
func (c *committer) gathered() bool {
	return c.senders.queued >= c.senders.awaited || c.waiting >= recordTarget
}
