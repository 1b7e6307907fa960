package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ages"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A process trims the records it has seen for long enough, whatever the stamps say; the
// next one goes by the stamps.
func TestAgedRecordsAreTrimmedInThisLifeAndTheNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	s := j.source(t, "k")
	for i := range 4 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	read(t, s, 4, true)
	s.Close()
	waiting.Until(t, func() bool { at, err := j.delivered(t.Context()); return err == nil && at == 4 })
	now := ages.Now()
	trimmed := func(j *opened, now ages.Moment) uint64 {
		n, err := j.trimAged(t.Context(), now)
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, trimmed(j, now))
	assert.Zero(t, trimmed(j, ages.Moment{Wall: now.Wall.Add(1000 * time.Hour), Up: now.Up}), "the wall clock was set ahead")
	third, err := j.stream.GetMsg(t.Context(), 3)
	require.NoError(t, err)
	j.shut(t)

	j = open(t, dir, testConfig)
	now = ages.Now()
	assert.Zero(t, trimmed(j, now))
	n, err := j.stampedBefore(t.Context(), 1, 5, third.Time, time.Now())
	require.NoError(t, err)
	assert.Equal(t, uint64(3), n)
	n, err = j.stampedBefore(t.Context(), 1, 5, third.Time.Add(time.Hour), third.Time.Add(-time.Nanosecond))
	require.NoError(t, err)
	assert.Equal(t, uint64(3), n, "what is stamped later than now says nothing")
	past := testConfig.ReplayWindow + time.Minute
	assert.Equal(t, uint64(4), trimmed(j, ages.Moment{Wall: now.Wall.Add(past), Up: now.Up + past}))
	j.shut(t)
}
