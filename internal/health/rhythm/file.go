package rhythm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// version is the version of the stored form. Another one is refused: a rhythm is learnt
// again in two weeks.
const version = 1

// stored is a model in JSON, of 30 KB at most.
type stored struct {
	Version int `json:"version"`
	// Hours have when (in hours since 1970), seconds watched, bursts and events. Those of
	// one hour of the week stand the newest first.
	Hours  [][4]float64 `json:"hours"`
	Open   int64        `json:"open"`
	Pushes level        `json:"pushes"`
	Events level        `json:"events"`
	// Gaps have a bucket and its count. Weight is the weight of all gaps.
	Gaps   [][2]float64 `json:"gaps"`
	Weight float64      `json:"weight"`
	// Drought is the present one, with the tail of the earlier ones as for gaps; absent in
	// files of earlier versions.
	Drought       drought      `json:"drought,omitzero"`
	Droughts      [][2]float64 `json:"droughts,omitempty"`
	DroughtWeight float64      `json:"drought_weight,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (m *Model) MarshalJSON() ([]byte, error) {
	s := stored{
		Version: version, Open: m.open, Pushes: m.pushes, Events: m.events, Gaps: m.tail.stored(), Weight: rounded(m.tail.Weight),
		Drought: m.thin, Droughts: m.thin.tail.stored(), DroughtWeight: rounded(m.thin.tail.Weight),
	}
	for i := range m.slots {
		for _, h := range m.slots[i] {
			if h.Hour != 0 {
				s.Hours = append(s.Hours, [4]float64{float64(h.Hour), rounded(h.Seconds), h.Bursts, h.Events})
			}
		}
	}
	return json.Marshal(s)
}

// stored gives the buckets in use, with their counts.
func (t *tail) stored() (all [][2]float64) {
	for i, n := range t.Counts {
		if n = rounded(n); n > 0 {
			all = append(all, [2]float64{float64(i), n})
		}
	}
	return all
}

// take takes the stored buckets.
func (t *tail) take(stored [][2]float64) error {
	for _, g := range stored {
		if !sound(g[:]...) || g[0] >= tailBuckets || g[0] != math.Trunc(g[0]) {
			return fmt.Errorf("a rhythm's gap %v is none", g)
		}
		t.Counts[int(g[0])] = g[1]
	}
	return nil
}

func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }

// UnmarshalJSON implements [json.Unmarshaler]. An error names the damaged part, and
// leaves the model as it was.
func (m *Model) UnmarshalJSON(data []byte) error {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read a rhythm: %w", err)
	}
	if s.Version != version {
		return fmt.Errorf("a rhythm has version %d, not %d", s.Version, version)
	}
	fresh := Model{open: s.Open, pushes: s.Pushes, events: s.Events, tail: tail{Weight: s.Weight}, thin: s.Drought}
	fresh.thin.tail.Weight = s.DroughtWeight
	if s.Open < 0 || !sound(s.Pushes.Seen, s.Pushes.Expected, s.Events.Seen, s.Events.Expected, s.Weight, s.DroughtWeight, s.Drought.Depth, s.Drought.Peak, s.Drought.Came) {
		return errors.New("a rhythm's levels are no counts")
	}
	for _, h := range s.Hours {
		if err := fresh.take(h); err != nil {
			return err
		}
	}
	if err := errors.Join(fresh.tail.take(s.Gaps), fresh.thin.tail.take(s.Droughts)); err != nil {
		return err
	}
	fresh.derive()
	*m = fresh
	return nil
}

// take takes a stored hour.
func (m *Model) take(h [4]float64) error {
	if !sound(h[:]...) || h[0] < 1 || h[0] != math.Trunc(h[0]) || h[1] > 3600 {
		return fmt.Errorf("a rhythm's hour %v is none", h)
	}
	s := &m.slots[of(int64(h[0]))]
	for i := range s {
		if s[i].Hour == 0 {
			s[i] = hour{int64(h[0]), h[1], h[2], h[3]}
			return nil
		}
		if s[i].Hour <= int64(h[0]) {
			break
		}
	}
	return fmt.Errorf("a rhythm's hour %v is out of order, or one too many", h)
}

// sound reports whether counts are such, and not too large to compute with.
func sound(counts ...float64) bool {
	for _, x := range counts {
		if !(x >= 0 && x <= 1e15) {
			return false
		}
	}
	return true
}
