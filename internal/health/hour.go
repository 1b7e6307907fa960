package health

import "time"

// minutesKept is how many whole minutes an [hour] has.
const minutesKept = 60

// hour counts the events of the last minutes, by time since the watch began: a jump of the machine's
// clock changes nothing. The zero value has seen nothing.
type hour struct {
	counts [minutesKept + 1]int64 // by minute, in a ring
	minute int64                  // the present one
	total  int64                  // of events, at the last note
	began  bool
}

// note takes in how many events there were in all, after a time.
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
