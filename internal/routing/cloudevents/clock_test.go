package cloudevents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestClock(t *testing.T) {
	t.Parallel()
	var c Clock
	at := time.Date(2026, 2, 28, 23, 59, 59, 0, time.FixedZone("", 3600))
	for _, d := range []time.Duration{0, 1, 10, 100_000_000, 123_456_789, 999_999_999, time.Second, time.Hour, -1, -90 * 365 * 24 * time.Hour, 200 * 365 * 24 * time.Hour} {
		at = at.Add(d)
		assert.Equal(t, at.UTC().Format(time.RFC3339Nano), string(c.Append(nil, at)))
	}
	assert.Equal(t, "0001-01-01T00:00:00Z", string((&Clock{}).Append(nil, time.Time{})))
}
