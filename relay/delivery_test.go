package relay

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
)

// A sink may have a pump for each shard of the journal. One that works, or begins, or ends, does not
// hide that another one fails.
func TestASinkFailsAsLongAsOneOfItsPumpsDoes(t *testing.T) {
	t.Parallel()
	m := NewMetrics(prometheus.NewRegistry())
	first, second := &outage{sink: "s"}, &outage{sink: "s"}
	m.failing("s", first, true)
	since := m.Delivery("s").FailingSince
	assert.False(t, since.IsZero())
	m.failing("s", second, false)
	assert.Equal(t, since, m.Delivery("s").FailingSince)
	m.failing("s", second, true)
	assert.Equal(t, since, m.Delivery("s").FailingSince, "since the first one fails")
	m.failing("s", first, false)
	assert.True(t, m.Delivery("s").FailingSince.After(since))
	m.failing("s", second, false)
	assert.True(t, m.Delivery("s").FailingSince.IsZero())
}
