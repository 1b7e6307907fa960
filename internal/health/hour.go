package health

import "time"

// minutesKept is how many whole minutes an [hour] has.
const minutesKept = 60

// hour counts events, or refused pushes, of the last minutes, by time since the watch began: a jump of the machine's
// clock changes nothing. The zero value has seen nothing.
type hour struct {
	counts [minutesKept + 1]int64 // by minute, in a ring
	minute int64                  // the present one
	total  int64                  // at the last note
	began  bool
}

// note takes in how many of them there were in all, after a time.
func (h *hour) note(since time.Duration, total int64) {
	if !h.began {
		h.began, h.total = true, total
	}
	minute := max(h.minute, int64(since/time.Minute))
	for m := max(h.minute+1, minute-minutesKept); m <= minute; m++ {
		h.counts[m%int64(len(h.counts))] = 0
	}
	h.counts[minute%int64(len(h.counts))] += total - h.total
	h.minute, h.total = minute, total
}

// whole are the counts of the whole minutes, the oldest first.
func (h *hour) whole() []int64 {
	list := []int64{}
	for m := max(0, h.minute-minutesKept); m < h.minute; m++ {
		list = append(list, h.counts[m%int64(len(h.counts))])
	}
	return list
}

// from is the count since the beginning of a minute.
func (h *hour) from(minute int64) (n int64) {
	for m := max(minute, h.minute-minutesKept, 0); m <= h.minute; m++ {
		n += h.counts[m%int64(len(h.counts))]
	}
	return n
}

// What is counted goes on if it was seen in goesOnIn of the last goesOnOf minutes.
const goesOnIn, goesOnOf = 3, 10

// goesOn returns the first of these minutes if it goes on.
func (h *hour) goesOn() (first int64, goesOn bool) {
	seen := 0
	for m := h.minute; m > h.minute-goesOnOf && m >= 0; m-- {
		if h.counts[m%int64(len(h.counts))] > 0 {
			first, seen = m, seen+1
		}
	}
	return first, seen >= goesOnIn
}
