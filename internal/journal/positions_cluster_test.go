package journal

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// consumerLeader is the leader of a sink's position, or "" where none answers.
func consumerLeader(t *testing.T, j *opened, sink string) string {
	t.Helper()
	c, err := j.stream.Consumer(t.Context(), consumerPrefix+sink)
	if err != nil || c.CachedInfo().Cluster == nil {
		return ""
	}
	return c.CachedInfo().Cluster.Leader
}

// While the leader of a sink's position is gone, no list of consumers names the sink. Its
// undelivered records stay.
func TestTrimWaitsForASinkWhosePositionHasNoLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	j := c.open(t, "TRIM")
	defer j.shut(t)
	behind, ahead := j.source(t, "aaa"), j.source(t, "zzz")
	defer behind.Close()
	defer ahead.Close()
	const events = 50
	for i := range events {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	read(t, ahead, events, true)
	for range 2 {
		var leader string
		waiting.Until(t, func() bool { leader = consumerLeader(t, j, "aaa"); return leader != "" })
		if c.named(t, leader) == c.leader(t, j.names.events) { // a stream without a leader is not trimmed anyway
			stepDown(t, j, "STREAM.LEADER.STEPDOWN."+j.names.events)
		}
		gone := c.named(t, leader)
		c.Kill(gone)
		trims := 0
		waiting.Until(t, func() bool {
			n, _ := j.trimAll(t) // it fails without a leader
			assert.Zero(t, n, "records that aaa has not had")
			trims++
			return t.Failed() || consumerLeader(t, j, "aaa") != ""
		})
		t.Logf("%d trims while the position's leader was gone", trims)
		c.restart(t, gone)
	}
	assert.Len(t, read(t, behind, events, true), events)
	trimmed, last := uint64(0), error(nil)
	waiting.Until(t, func() bool {
		var n uint64
		n, last = j.trimAll(t)
		trimmed += n
		return trimmed == events
	}, "it is trimmed once every sink has it")
	require.NoError(t, last)
}
