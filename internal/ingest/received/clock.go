package received

import (
	"math"
	"time"
)

// Clock is what the newest pushes show of their sender's clock: the age of the newest event of
// a push, at its arrival. It is next to 0 for a live stream whose sender's clock is right. An
// age below 0 is of an event from the future; the same great age in every push is of a clock
// slow, or of a constant delay.
type Clock struct {
	// Samples is their number, at most [ClockSamples]. Each has all pushes of some seconds.
	Samples int
	// Least and Most are the least and the greatest age.
	Least, Most time.Duration
	// Calm is the greatest age in the sample where that is least, the newest one left out, as it
	// may have few pushes so far. It is next to Least, unless senders with different clocks push
	// side by side. Held is the least age in the sample where that is greatest: that of a clock
	// that was set since, or of events that were held up.
	Calm, Held time.Duration
}

// ClockSamples is the number of samples, and clockSlice the time of one.
const (
	ClockSamples = 6
	clockSlice   = 20 * time.Second
)

// noTime is the beginning of 2000, in Unix nanoseconds. A time before it is that of a sender
// without a clock, which counts from 1970, and tells nothing.
const noTime = 946_684_800_000_000_000

// ages holds the newest samples.
type ages struct {
	samples [ClockSamples]struct{ least, most time.Duration }
	at      [ClockSamples]int64 // the number of the slice, from 1; 0 for none
	next    int                 // the place of the next sample
}

func (c *ages) add(elapsed, age time.Duration) {
	slice, last := int64(elapsed/clockSlice)+1, (c.next+ClockSamples-1)%ClockSamples
	if c.at[last] != slice {
		last, c.next = c.next, (c.next+1)%ClockSamples
		c.at[last], c.samples[last].least, c.samples[last].most = slice, age, age
	}
	s := &c.samples[last]
	s.least, s.most = min(s.least, age), max(s.most, age)
}

func (c *ages) shows() (all Clock) {
	newest := (c.next + ClockSamples - 1) % ClockSamples
	for i, s := range c.samples {
		switch {
		case c.at[i] == 0:
			continue
		case all.Samples == 0:
			all.Least, all.Most, all.Calm, all.Held = s.least, s.most, math.MaxInt64, s.least
		}
		all.Samples++
		all.Least, all.Most, all.Held = min(all.Least, s.least), max(all.Most, s.most), max(all.Held, s.least)
		if i != newest {
			all.Calm = min(all.Calm, s.most)
		}
	}
	if all.Samples == 1 {
		all.Calm = all.Most
	}
	return all
}
