package health

import (
	"math"
	"slices"
)

// weeks is the number of past hours in a slot.
const weeks = 4

// slot has the last hours of one hour of the week, the newest first.
type slot [weeks]pastHour

// pastHour is one of them. An hour watched for less than half of it teaches nothing.
type pastHour struct {
	Hour    int64   `json:"h,omitempty"` // since 1970; 0 for none
	Seconds float64 `json:"s,omitempty"`
	Bursts  float64 `json:"b,omitempty"`
	Events  float64 `json:"e,omitempty"`
}

// at returns the entry of an hour, and makes it. Hours after it go: then the clock was
// ahead.
func (s *slot) at(when int64) *pastHour {
	for range s {
		if s[0].Hour > when {
			copy(s[:], s[1:])
			s[weeks-1] = pastHour{}
		}
	}
	if s[0].Hour != when {
		copy(s[1:], s[:weeks-1])
		s[0] = pastHour{Hour: when}
	}
	return &s[0]
}

func (s *slot) seen() (n int) {
	for _, h := range s {
		if h.Seconds >= 1800 {
			n++
		}
	}
	return n
}

// prior are the bursts expected in an hour of the week without any, before it is seen.
const prior = .05

// rate is the mean of the hours seen. Each counts at most three times the median, or one
// event more, so a single flood is not expected again.
func (s *slot) rate() rate {
	var bursts, events [weeks]float64
	n := 0
	for _, h := range s {
		if h.Seconds >= 1800 {
			bursts[n], events[n] = h.Bursts*3600/h.Seconds, h.Events*3600/h.Seconds
			n++
		}
	}
	if n == 0 {
		return rate{}
	}
	mean := (prior + trimmed(bursts[:n])) / float64(n)
	return rate{mean, mean, trimmed(events[:n]) / float64(n), n >= 2}
}

// trimmed is the sum of values, without any far above the lower median.
func trimmed(values []float64) (sum float64) {
	slices.Sort(values)
	most := 3*values[(len(values)-1)/2] + 1
	for _, v := range values {
		sum += min(v, most)
	}
	return sum
}

// level is the present rhythm against the learnt one, mostly of the last day: so a real
// change is followed long before the weeks show it.
type level struct {
	Seen     float64 `json:"seen"`
	Expected float64 `json:"expected"`
}

// After levelHalf watched hours, an hour counts half.
const levelHalf = 24

// add adds an hour. It counts at most `times` the expected number, or a bit more.
func (l *level) add(seen, expected, times, more float64) {
	kept := math.Exp2(-1. / levelHalf)
	l.Seen = l.Seen*kept + min(seen, times*expected+more)
	l.Expected = l.Expected*kept + expected
}

// value is 1 while little is known.
func (l *level) value() float64 {
	const steady = 10
	return min(max((l.Seen+steady)/(l.Expected+steady), .01), 100)
}
