package health

import "time"

// Model has learnt nothing yet: internal/rhythm takes its place.
type Model struct{}

// Observe learns nothing.
func (*Model) Observe(_, _ time.Time, _, _ int64) {}

// Expected is 0: nothing is learnt.
func (*Model) Expected(_, _ time.Time) float64 { return 0 }

// SilentAfter is false: nothing is learnt.
func (*Model) SilentAfter(time.Time) (time.Time, bool) { return time.Time{}, false }
