package connlimit

import (
	"sync"
	"time"
)

// deadline is when the reads or the writes of a connection fail. net/http asks for ten of them in
// each request, and each would change a timer of the runtime. So a connection gets only the one
// that some read or write is going to wait for, and none if the one that it has will do.
type deadline struct {
	mu    sync.Mutex
	asked time.Time // guarded by mu
	armed time.Time // what the connection has; guarded by mu
	calls int       // reads or writes under way; guarded by mu
}

// ask sets the deadline. Calls under way get it at once.
func (d *deadline) ask(t time.Time, arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = t
	if d.calls == 0 {
		return nil
	}
	d.armed = t
	return arm(t)
}

// begin is called before a read or a write.
func (d *deadline) begin(arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.near() {
		if err := arm(d.asked); err != nil {
			return err
		}
		d.armed = d.asked
	}
	d.calls++
	return nil
}

func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls--
}

// nearShare of the time until a deadline is how much earlier it may be.
const nearShare = 16

// near reports whether the deadline that the connection has is the one that is asked for, or one
// that is hardly earlier. mu is held.
func (d *deadline) near() bool {
	if d.asked.IsZero() || d.armed.IsZero() {
		return d.asked.Equal(d.armed)
	}
	early := d.asked.Sub(d.armed)
	return early == 0 || early > 0 && early < time.Until(d.asked)/nearShare
}
