package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// rhythmVersion is the version of the stored form. Another one is refused: a rhythm is learnt
// again in two weeks.
const rhythmVersion = 1

// learntRhythm is what a model has learnt, as it is stored.
type learntRhythm struct {
	Version int         `json:"version"`
	Hours   [hours]slot `json:"hours"`
	Open    int64       `json:"open"` // the hour under way, in hours since 1970
	Pushes  level       `json:"pushes"`
	Events  level       `json:"events"`
	Gaps    tail        `json:"gaps"`
	Drought drought     `json:"drought"`
}

// MarshalJSON implements [json.Marshaler].
func (m *Rhythm) MarshalJSON() ([]byte, error) {
	m.Version = rhythmVersion
	return json.Marshal(m.learntRhythm)
}

// UnmarshalJSON implements [json.Unmarshaler]. An error names the damaged part, and
// leaves the model as it was.
func (m *Rhythm) UnmarshalJSON(data []byte) error {
	var fresh Rhythm
	if err := json.Unmarshal(data, &fresh.learntRhythm); err != nil {
		return fmt.Errorf("read a rhythm: %w", err)
	}
	if fresh.Version != rhythmVersion {
		return fmt.Errorf("a rhythm has version %d, not %d", fresh.Version, rhythmVersion)
	}
	if err := fresh.check(); err != nil {
		return err
	}
	fresh.derive()
	*m = fresh
	return nil
}

// check names what is damaged.
func (l *learntRhythm) check() error {
	d := &l.Drought
	if l.Open < 0 || !sound(l.Pushes.Seen, l.Pushes.Expected, l.Events.Seen, l.Events.Expected, d.Depth, d.Peak, d.Came) {
		return errors.New("a rhythm's levels are no counts")
	}
	for _, t := range []*tail{&l.Gaps, &d.Tail} {
		if !sound(t.Weight) || !sound(t.Counts[:]...) {
			return errors.New("a rhythm's gaps are no counts")
		}
	}
	for i := range l.Hours {
		before := int64(math.MaxInt64)
		for _, h := range l.Hours[i] {
			switch {
			case h == pastHour{}:
			case h.Hour < 1 || weekHour(h.Hour) != int64(i) || h.Seconds > 3600 || !sound(h.Seconds, h.Bursts, h.Events):
				return fmt.Errorf("a rhythm's hour %v is none", h)
			case h.Hour >= before:
				return fmt.Errorf("a rhythm's hour %v is out of order, or one too many", h)
			}
			before = h.Hour
		}
	}
	return nil
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
