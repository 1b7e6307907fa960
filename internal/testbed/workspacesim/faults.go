package workspacesim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults are the faults of the API. The zero value is a healthy service.
type Faults struct {
	// Outage closes every connection without an answer.
	Outage bool
	// ErrorRates are shares of the requests, 0 to 1. Such a request gets a status (400 to
	// 599) instead of being handled. Their sum is at most 1.
	ErrorRates map[int]float64
	// RetryAfter goes with the 429 and 5xx of ErrorRates, in whole seconds;
	// 0 sends none.
	RetryAfter time.Duration
	// Latency is added to each request, and up to LatencyJitter more.
	Latency       time.Duration
	LatencyJitter time.Duration
	// CutRate is the share of requests with a cut connection: before the operation took
	// effect, after it, or halfway through the answer, with equal odds.
	CutRate float64
	// PathContains confines all of the above to paths containing it.
	PathContains string
}

func (f *Faults) validate() error {
	var sum float64
	for status, share := range f.ErrorRates {
		if status < 400 || status > 599 {
			return fmt.Errorf("error_rates: status %d is not in 400 to 599", status)
		}
		if !isShare(share) {
			return fmt.Errorf("error_rates: share %v of status %d is not in 0 to 1", share, status)
		}
		sum += share
	}
	switch {
	case sum > 1+1e-9:
		return fmt.Errorf("error_rates: shares sum up to %v, more than 1", sum)
	case !isShare(f.CutRate):
		return fmt.Errorf("cut_rate: %v is not in 0 to 1", f.CutRate)
	case f.Latency < 0 || f.LatencyJitter < 0 || f.RetryAfter < 0:
		return fmt.Errorf("latency, latency_jitter and retry_after must not be negative")
	}
	return nil
}

func isShare(x float64) bool { return x >= 0 && x <= 1 }

// faultBox draws the faults of requests. Their order follows from the seed.
type faultBox struct {
	mu  sync.Mutex // guards both
	set Faults
	rng *rand.Rand
}

// fault is the fault of one request.
type fault struct {
	latency                        time.Duration
	retryAfter                     time.Duration
	status                         int
	cutBefore, cutAfter, cutMidway bool
}

func (b *faultBox) draw(path string) fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	var f fault
	if !strings.Contains(path, b.set.PathContains) {
		return f
	}
	f.cutBefore = b.set.Outage
	f.latency = b.set.Latency
	if b.set.LatencyJitter > 0 {
		f.latency += time.Duration(b.rng.Int64N(int64(b.set.LatencyJitter)))
	}
	if b.rng.Float64() < b.set.CutRate {
		switch b.rng.IntN(3) {
		case 0:
			f.cutBefore = true
		case 1:
			f.cutAfter = true
		default:
			f.cutMidway = true
		}
	}
	if f.status = b.drawStatus(); f.status == 429 || f.status >= 500 {
		f.retryAfter = b.set.RetryAfter
	}
	return f
}

func (b *faultBox) drawStatus() int {
	x := b.rng.Float64()
	for _, status := range slices.Sorted(maps.Keys(b.set.ErrorRates)) {
		if x < b.set.ErrorRates[status] {
			return status
		}
		x -= b.set.ErrorRates[status]
	}
	return 0
}

// SetFaults replaces the faults, from the next request on.
func (s *Simulator) SetFaults(f Faults) error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("set faults: %w", err)
	}
	f.ErrorRates = maps.Clone(f.ErrorRates)
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.set = f
	return nil
}

// Faults returns the current faults.
func (s *Simulator) Faults() Faults {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	f := s.faults.set
	f.ErrorRates = maps.Clone(f.ErrorRates)
	return f
}
